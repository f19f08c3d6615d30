"""A comparison in tables: the terminal's and Markdown's, below the verdict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from bough.comparison.compare import AXES, Comparison
from bough.comparison.groups import Variant
from bough.comparison.verdict import verdict
from bough.formatting import chance, number, seconds, size

# --- tables --------------------------------------------------------------------------------------


def grid(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """Scores: a row per variant."""
    head = ["variant", "seeds", *(_heading(found, name) for name in found.columns())]
    body = []
    for v in found.variants:
        own = found.scores[v.label]
        cells = []
        for name in found.columns():
            if name not in own:
                cells.append("")
                continue
            low, high = own[name].interval
            cells.append(f"{number(own[name].value)} ({number(low)} to {number(high)})")
        body.append([_named(found, v), str(len(v.seeds)), *cells])
    return head, body


def differences(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """What each variant has more than the baseline, with corrected p."""
    head = ["variant", *found.columns()]
    body = []
    for v in found.others:
        cells = []
        for name in found.columns():
            d = found.scores[v.label][name].difference if name in found.scores[v.label] else None
            if d is None:
                cells.append("")
                continue
            p = f", p {chance(d.holm, d.seeds)}" if d.holm is not None else ""
            mark = " *" if d.real else ""
            cells.append(f"{number(d.value, signed=True)} ± {number(d.half)}{p}{mark}")
        body.append([v.label, *cells])
    return head, body


def spending(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """Costs and the two relative scores."""
    head = ["variant", "to serve", "with optimiser", "step", "training", "TM printed", "TM steady"]
    latency = any("latency_seconds" in v.cost for v in found.variants)
    head += ["latency"] * latency + ["on the front of"]
    body = []
    for v in found.variants:
        cells = [
            size(v.cost["bytes_to_serve"]) if "bytes_to_serve" in v.cost else "",
            size(v.cost["bytes_with_optimiser"]) if "bytes_with_optimiser" in v.cost else "",
            seconds(v.cost["step_seconds"]) if "step_seconds" in v.cost else "",
            seconds(v.cost["training_seconds"]) if "training_seconds" in v.cost else "",
        ]
        for form in ("printed", "steady"):
            relative = found.relative(v, form)
            cells.append("" if relative is None else number(relative))
        if latency:
            cells.append(seconds(v.cost["latency_seconds"]) if "latency_seconds" in v.cost else "")
        cells.append(", ".join(AXES[a] for a, front in found.fronts.items() if v.label in front))
        body.append([_named(found, v), *cells])
    return head, body


def _heading(found: Comparison, name: str) -> str:
    return f"{name} ({found.metrics[name]})" if name in found.metrics else name


def _named(found: Comparison, v: Variant) -> str:
    return f"{v.label} (baseline)" if v is found.baseline and found.others else v.label


def foot(found: Comparison) -> str:
    """How to read the tables, as far as they are there."""
    seeds = [len(v.seeds) for v in found.variants]
    over = (
        "new examples; another seed would change more"
        if max(seeds) == 1
        else (
            "new seeds and new examples"
            + (" (of one seed: new examples only)" if 1 in seeds else "")
        )
    )
    said = [f"In brackets{' and after ±' if found.others else ''}: 95 % intervals over {over}."]
    given = [s.difference for own in found.scores.values() for s in own.values() if s.difference]
    if any(d.p is not None for d in given):
        said.append("p is corrected for the comparisons of its column (Holm); * marks p < .05.")
    if found.others:
        said.append("TM: raw score x (baseline's time / time) x (baseline's memory / memory).")
    return " ".join(said)


def markdown(found: Comparison) -> str:
    said = verdict(found)
    parts = [f"**{_plain(said.headline)}**", ""]
    parts += [f"- {_plain(line)}" for line in (*said.tasks.values(), *said.costs)]
    parts += ["", f"Scores on {found.split}:", "", _pipes(*grid(found)), ""]
    if found.others:
        against = _plain(found.baseline.label)
        parts += [f"Differences from {against}:", "", _pipes(*differences(found)), ""]
        parts += ["Costs:", "", _pipes(*spending(found)), ""]
    parts += [_plain(foot(found)), ""]
    parts += [f"- {_plain(note)}" for note in said.notes]
    return "\n".join(parts).rstrip() + "\n"


def _plain(text: str) -> str:
    """Text that Markdown takes as it is."""
    for sign in "\\`*_<>|":
        text = text.replace(sign, "\\" + sign)
    return text


def _pipes(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    return "\n".join(
        f"| {' | '.join(cell if i == 1 else _plain(cell) for cell in row)} |"
        for i, row in enumerate(rows)
    )


def show(found: Comparison) -> None:
    """Verdict and tables, on standard output."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    # Where there is no terminal to fit, tables are as wide as they need.
    console = Console(width=None if sys.stdout.isatty() else 140)
    said = verdict(found)
    console.print(said.headline, style="bold", markup=False, highlight=False)
    for line in said.lines()[1:]:
        console.print(f"- {line}", markup=False, highlight=False)
    tables = [(f"scores on {found.split}", grid(found))]
    if found.others:
        tables += [
            (f"differences from {found.baseline.label}", differences(found)),
            ("costs", spending(found)),
        ]
    for title, (head, body) in tables:
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        for i, heading in enumerate(head):
            justify: Literal["left", "right"] = "left" if i == 0 else "right"
            table.add_column(_broken(heading), justify=justify, overflow="fold")
        for row in body:
            table.add_row(*map(_broken, row))
        console.print(table, markup=False)
    console.print(foot(found), style="dim", markup=False, highlight=False)


def _broken(text: str) -> str:
    """With the interval, or the p, in a line of its own: a terminal is narrow."""
    return text.replace(" (", "\n(").replace(", p", "\np")
