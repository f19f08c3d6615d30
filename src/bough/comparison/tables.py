"""A comparison in tables: the terminal's and Markdown's, below the verdict."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bough.comparison.compare import AXES, Comparison
from bough.comparison.groups import Variant
from bough.comparison.verdict import verdict
from bough.formatting import chance, number, seconds, size
from bough.runs.console import plain_console
from bough.safe_text import shown

if TYPE_CHECKING:
    from rich.console import Console

Table = tuple[list[str], list[list[str]]]  # head, body
WIDTH = 140  # where there is no terminal to fit, tables are as wide as they need
COSTS = {
    "to serve": ("bytes_to_serve", size),
    "with optimiser": ("bytes_with_optimiser", size),
    "step": ("step_seconds", seconds),
    "training": ("training_seconds", seconds),
}


def _tables(comparison: Comparison) -> Iterator[tuple[str, Table]]:
    """Each with its title; what is held against a baseline only where there are others."""
    yield f"scores on {comparison.split}", _scores(comparison)
    if comparison.others:
        yield f"differences from {comparison.baseline.label}", _differences(comparison)
        yield "costs", _costs(comparison)


def _scores(comparison: Comparison) -> Table:
    columns = comparison.columns()
    head = [f"{n} ({comparison.metrics[n]})" if n in comparison.metrics else n for n in columns]
    body = []
    for v in comparison.variants:
        scores = comparison.scores[v.label]
        cells = [
            f"{number(scores[name].value)} ({' to '.join(map(number, scores[name].interval))})"
            if name in scores
            else ""
            for name in columns
        ]
        body.append([_name(comparison, v), str(len(v.seeds)), *cells])
    return ["variant", "seeds", *head], body


def _differences(comparison: Comparison) -> Table:
    """What each variant has more than the baseline, with corrected p."""
    body = []
    for v in comparison.others:
        cells = []
        for name in comparison.columns():
            d = comparison.difference(v, name)
            if d is None:
                cells.append("")
                continue
            p = f", p {chance(d.holm, d.seeds)}" if d.holm is not None else ""
            mark = " *" if d.real else ""
            cells.append(f"{number(d.value, signed=True)} ± {number(d.half)}{p}{mark}")
        body.append([v.label, *cells])
    return ["variant", *comparison.columns()], body


def _costs(comparison: Comparison) -> Table:
    """Costs and, where times can be compared, the two relative scores."""
    known = {key for v in comparison.variants for key in v.cost}
    columns = {words: own for words, own in COSTS.items() if own[0] in known}
    forms = comparison.relative_forms
    head = ["variant", *columns, *(f"TM {form}" for form in forms), "on the front of"]
    body = []
    for v in comparison.variants:
        costs = [form(v.cost[key]) if key in v.cost else "" for key, form in columns.values()]
        relative = [comparison.relative(v, form) for form in forms]
        tm = ["" if value is None else number(value) for value in relative]
        fronts = [AXES[a] for a, front in comparison.fronts.items() if v.label in front]
        body.append([_name(comparison, v), *costs, *tm, ", ".join(fronts)])
    return head, body


def _name(comparison: Comparison, v: Variant) -> str:
    return f"{v.label} (baseline)" if v is comparison.baseline and comparison.others else v.label


def foot(comparison: Comparison) -> str:
    """How to read the tables, as far as they are there."""
    seeds = [len(v.seeds) for v in comparison.variants]
    over = "new seeds and new examples" + " (of one seed: new examples only)" * (1 in seeds)
    if max(seeds) == 1:
        over = "new examples; another seed would change more"
    also = " and after ±" if comparison.others else ""
    sentences = [f"In brackets{also}: 95 % intervals over {over}."]
    scores = [score for row in comparison.scores.values() for score in row.values()]
    if any(score.difference and score.difference.p is not None for score in scores):
        sentences.append("p is corrected for all that the verdict may say (Holm); * marks p < .05.")
    if comparison.others and comparison.relative_forms:
        sentences.append("TM: raw score x (baseline's time / time) x (baseline's memory / memory).")
    return " ".join(sentences)


def markdown(comparison: Comparison) -> str:
    words = verdict(comparison)
    parts = [f"**{_escaped(words.headline)}**", ""]
    lines = (*words.unlearned, *words.tasks.values(), *words.open, *words.costs)
    parts += [f"- {_escaped(line)}" for line in lines]
    for title, table in _tables(comparison):
        parts += ["", f"{_escaped(title[0].upper() + title[1:])}:", "", _pipes(*table)]
    parts += ["", _escaped(foot(comparison)), ""]
    parts += [f"- {_escaped(note)}" for note in words.notes]
    return "\n".join(parts).rstrip() + "\n"


def _escaped(text: str) -> str:
    """Text that Markdown takes as it is."""
    text = shown(text)
    for sign in "\\`*_<>|[]&":
        text = text.replace(sign, "\\" + sign)
    return text


def _pipes(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [map(_escaped, head), ["---"] + ["---:"] * (len(head) - 1)]
    lines += [map(_escaped, row) for row in body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(comparison: Comparison) -> None:
    """Verdict and tables, on standard output."""
    _print(comparison, plain_console(width=None if sys.stdout.isatty() else WIDTH))


def plain(comparison: Comparison) -> str:
    """The same as text."""
    file = io.StringIO()
    _print(
        comparison, plain_console(file=file, width=WIDTH, color_system=None, force_jupyter=False)
    )
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _print(comparison: Comparison, console: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    headline, *lines = verdict(comparison).lines()
    console.print(shown(headline), style="bold", highlight=False)
    for line in lines:
        console.print(shown(f"- {line}"), highlight=False)
    for title, (head, body) in _tables(comparison):
        table = Table(title=shown(title), title_justify="left", box=SIMPLE_HEAD)
        for i, heading in enumerate(head):
            table.add_column(_broken(heading), justify="right" if i else "left", overflow="fold")
        for row in body:
            table.add_row(*map(_broken, row))
        console.print(table)
    console.print(foot(comparison), style="dim", highlight=False)


def _broken(text: str) -> str:
    """With the interval, or the p, in a line of its own: a terminal is narrow."""
    return shown(text).replace(" (", "\n(").replace(", p", "\np")
