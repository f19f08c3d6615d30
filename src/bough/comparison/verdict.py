"""The verdict: what a person takes away from a comparison, in plain words."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bough.comparison.compare import AXES, Comparison
from bough.comparison.groups import FEW, Variant
from bough.comparison.scores import MARGIN, Difference, most_seeds
from bough.formatting import and_then, less, number, share

MOST_OPEN = 3  # questions that are named one by one


@dataclass(frozen=True)
class Verdict:
    """What came out, in plain words."""

    headline: str
    unlearned: tuple[str, ...]  # on tasks of which only the commonest class may be known
    tasks: dict[str, str]  # a sentence per task, and on the mean where something shows in it
    costs: tuple[str, ...]  # a sentence per variant that costs more or less
    open: tuple[str, ...]  # what the seeds leave undecided, and how many would decide it
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        first, last = ([f"Note: {note}" for note in some] for some in (self.unlearned, self.notes))
        return [self.headline, *first, *self.tasks.values(), *self.open, *self.costs, *last]


def verdict(comparison: Comparison) -> Verdict:
    if not comparison.others:
        return _alone(comparison)
    columns, overall = list(comparison.metrics), comparison.overall
    if overall not in columns and any(d.real for _, d in _apart(comparison, overall)):
        columns.append(overall)  # what shows in the mean need not show in any task alone
    tasks = {name: _sentence(comparison, name) for name in columns}
    costs = [text for v in comparison.others if (text := _cost(comparison, v))]
    return Verdict(
        _headline(comparison),
        tuple(comparison.unlearned.values()),
        tasks,
        tuple(costs),
        tuple(_open(comparison)),
        comparison.notes,
    )


def _alone(comparison: Comparison) -> Verdict:
    only, many = comparison.baseline, len(comparison.baseline.seeds)
    tasks = {}
    for name, metric in comparison.metrics.items():
        score = comparison.scores[only.label][name]
        low, high = map(number, score.interval)
        tasks[name] = f"{name}: {metric} {number(score.value)}, between {low} and {high}."
    head = (
        f"One finished variant, {only.label}, on {_seeds(many)}: there is nothing to compare it "
        "with."
    )
    first = tuple(comparison.unlearned.values())
    return Verdict(head, first, tasks, (), (), comparison.notes)


def _sentence(comparison: Comparison, name: str) -> str:
    """What happens to one task."""
    apart = _apart(comparison, name)
    if not apart:
        return f"{name}: not in the baseline, so there is nothing to compare it with."
    enough, two, one = (
        [(v.label, d) for v, d in apart if least <= d.seeds < more]
        for least, more in ((FEW, sys.maxsize), (2, FEW), (1, 2))
    )
    base, parts = comparison.baseline.label, []
    # Where the headline calls all of it an anecdote, it need not be said again.
    overall = _apart(comparison, comparison.overall)
    mixed = bool(enough) or not overall or any(d.seeds >= FEW for _, d in overall)
    if enough:
        parts.append(_shown(name, base, enough))
    if two:
        lead = f"Anecdote ({_seeds(2)}): " if mixed else ""
        parts.append(f"{lead}{_shown(name, base, two)}")
    if one:
        each = and_then([f"{number(d.value, signed=True)} with {label}" for label, d in one])
        lead = f"Anecdote ({_seeds(1)}): " if mixed else ""
        parts.append(f"{lead}{name}: {each} against {base}; one seed says nothing about the next.")
    return " ".join(parts)


def _apart(comparison: Comparison, column: str) -> list[tuple[Variant, Difference]]:
    """The variants that can be held against the baseline there."""
    return [(v, d) for v in comparison.others if (d := comparison.difference(v, column))]


def _shown(name: str, base: str, apart: Sequence[tuple[str, Difference]]) -> str:
    """Gains, losses, and what is neither as far as the seeds can show."""
    few = min(d.seeds for _, d in apart)
    gains = [(label, d) for label, d in apart if d.real and d.value > 0]
    losses = [(label, d) for label, d in apart if d.real and d.value < 0]
    parts = []
    for verb, some in (("gains", gains), ("loses", losses)):
        if some:
            ordered = sorted(some, key=lambda pair: -abs(pair[1].value))
            parts.append(f"{verb} {and_then([_amount(label, d) for label, d in ordered])}")
    rest = [(label, d) for label, d in apart if not d.real]
    if not parts:
        return f"{name}: no difference from {base} that {_seeds(few)} can show ({_unseen(rest)})."
    sentence = f"{name} {', and '.join(parts)} (against {base})"
    if rest:
        others = and_then([label for label, _ in rest]) if len(rest) < 5 else f"{len(rest)} others"
        sentence += f"; no difference that {_seeds(few)} can show with {others}"
    return sentence + "."


def _open(comparison: Comparison) -> list[str]:
    """How many seeds would settle what is open in the score of all tasks."""
    column = comparison.overall
    what = f"{column} score" if len(comparison.metrics) > 1 else column
    apart = [(v.label, d) for v, d in _apart(comparison, column) if d.open]
    apart.sort(key=lambda pair: pair[1].settled_by or sys.maxsize)
    lines = []
    for label, d in apart[:MOST_OPEN]:
        seen = f"{number(d.value, signed=True)} ± {number(d.half)}"
        how = f"{_seeds(most_seeds(d.seeds))} would not settle it"
        if d.settled_by:
            wanted = f"{_seeds(d.settled_by)} a side, of which {d.seeds} are there,"
            how = f"{wanted} settle it at even odds"
        elif d.rows_settle:
            how += f", for there are too few {comparison.split} rows"
        lines.append(
            f"Open: {label} against {comparison.baseline.label} in {what} ({seen}): {how}."
        )
    if len(apart) > MOST_OPEN:
        lines.append(f"Open, too: {and_then([label for label, _ in apart[MOST_OPEN:]])}.")
    return lines


def _amount(label: str, d: Difference) -> str:
    return f"{number(abs(d.value))} ± {number(d.half)} with {label}"


def _unseen(rest: Sequence[tuple[str, Difference]]) -> str:
    """How large the differences look, and how large one would have to be."""
    values = [d.value for _, d in rest]
    low, high = number(min(values), signed=True), number(max(values), signed=True)
    half = number(max(d.half for _, d in rest))
    alone = [label for label, d in rest if d.p is not None and d.p < 0.05]
    only = f"; asked for alone, {and_then(alone)} would show" if 0 < len(alone) < 5 else ""
    if len(rest) == 1:
        return f"{rest[0][0]} {low} ± {half}{only}"
    return f"{low} to {high}, each ± {half} or less{only}"


def _seeds(many: int) -> str:
    return "one seed" if many == 1 else f"{many} seeds"


def _headline(comparison: Comparison) -> str:
    """The one or two sentences for someone who reads no more."""
    apart = _apart(comparison, comparison.overall)
    if not apart:
        return f"{len(comparison.variants)} variants, task by task (they have different tasks)."
    enough = [(v, d) for v, d in apart if d.seeds >= FEW]
    if not enough:
        return _anecdote(comparison, apart)
    few = [v.label for v, d in apart if d.seeds < FEW]
    more = f" Not counted, with fewer than {FEW} seeds: {and_then(few)}." if few else ""
    return _finding(comparison, enough) + more


def _anecdote(comparison: Comparison, apart: Sequence[tuple[Variant, Difference]]) -> str:
    base, what = comparison.baseline.label, f"{comparison.overall} score"
    counts = {len(v.seeds) for v in comparison.variants}
    fewer = f"fewer than {FEW} seeds on a side"
    many = f"{_seeds(counts.pop())} per variant" if len(counts) == 1 else fewer
    lead = f"An anecdote, not a finding ({many}): "
    best, d = max(apart, key=lambda pair: pair[1].value)
    if d.value > 0 and (d.p is None or d.interval[0] > 0):
        above = f"{best.label} is {number(d.value)} above {base} in {what}"
        return f"{lead}{above}{_saving(comparison, best)}."
    none = "no variant is above" if d.value <= 0 else "no variant is shown to be above"
    return f"{lead}{none} {base} in {what}{_cheapest(comparison, [v for v, _ in apart])}."


def _finding(comparison: Comparison, apart: Sequence[tuple[Variant, Difference]]) -> str:
    base, what = comparison.baseline, f"{comparison.overall} score"
    gaining = [(v, d) for v, d in apart if d.real and d.value > 0]
    if gaining:
        best, d = max(gaining, key=lambda pair: pair[1].value)
        score = comparison.scores[best.label][comparison.overall].value
        # Of several variants those that gain are not held against each other, nor is one that looks
        # better and is not shown to be.
        lead = "is the only variant that is shown to gain"
        if len(gaining) > 1:
            lead = "gains most of those that are shown to gain"
        if len(comparison.others) == 1:
            lead = "is best"
        return (
            f"{best.label} {lead}: {what} {number(score)}, {number(d.value)} ± {number(d.half)} "
            f"above {base.label}{_saving(comparison, best)}."
        )
    thrifty = [(v, d) for v, d in apart if _bytes(v) < 0.98 * _bytes(base)]
    every = [*comparison.metrics, comparison.overall]
    safe = [(v, d) for v, d in thrifty if _loss(comparison, v, every)[0] < MARGIN]
    if safe:
        v, d = min(safe, key=lambda pair: _bytes(pair[0]))
        cut = less(_bytes(v) / _bytes(base) - 1)
        most, _ = _loss(comparison, v, comparison.metrics)
        loses = f"loses at most {_at_most(most)}" if most > 0 else "loses nothing"
        return (
            f"{v.label} serves all tasks with {cut} memory and {loses} on any task "
            f"({_seeds(d.seeds)}, against {base.label})."
        )
    unharmed = [(v, d) for v, d in thrifty if not _harmed(comparison, v)]
    if unharmed:
        v, d = min(unharmed, key=lambda pair: _bytes(pair[0]))
        most, name = _loss(comparison, v, comparison.metrics)
        return (
            f"{v.label} saves {abs(_bytes(v) / _bytes(base) - 1) * 100:.0f} % of memory; with "
            f"{_seeds(d.seeds)} a loss of up to {_at_most(most)} on {name} cannot be ruled out "
            f"({what} {number(d.value, signed=True)} ± {number(d.half)} against {base.label})."
        )
    if all(d.real and d.value < 0 for _, d in apart):
        return f"{base.label} is best: every other variant scores less ({what})."
    few = _seeds(min(d.seeds for _, d in apart))
    return f"No variant beats {base.label} by a difference that {few} can show ({what})."


def _loss(comparison: Comparison, v: Variant, columns: Iterable[str]) -> tuple[float, str]:
    """What may be lost at most by the 95 % intervals, and where."""
    apart = ((name, comparison.difference(v, name)) for name in columns)
    return max((-d.interval[0], name) for name, d in apart if d is not None)


def _harmed(comparison: Comparison, v: Variant) -> bool:
    """Whether something may be worse, by its own interval: the correction for many comparisons
    would make it easier to look unharmed."""
    differences = (score.difference for score in comparison.scores[v.label].values())
    return any(d.interval[1] < 0 for d in differences if d)


def _at_most(value: float) -> str:
    """Rounded up, for a bound must not shrink."""
    return number(math.ceil(round(value * 1000, 6)) / 1000)


def _bytes(v: Variant) -> float:
    return v.cost.get("bytes_to_serve", float("inf"))


def _cheapest(comparison: Comparison, variants: Sequence[Variant]) -> str:
    thrifty = min(variants, key=_bytes)
    saving = _saving(comparison, thrifty).removeprefix(",")
    return f"; {thrifty.label} comes{saving}" if saving else ""


def _saving(comparison: Comparison, v: Variant) -> str:
    change = _bytes(v) / _bytes(comparison.baseline) - 1
    return f", with {less(change)} memory" if abs(change) > 0.02 else ""


def _paces_differ(*variants: Variant) -> bool:
    """Whether every run of one is faster than all of the other's: what else a machine does can
    make one of two like runs take twice as long, and one run shows nothing of that."""
    paces = [[run.cost["step_seconds"] for run in v.runs] for v in variants]
    first, second = sorted(paces, key=min)
    return len(first) > 1 < len(second) and max(first) < min(second)


def _cost(comparison: Comparison, v: Variant) -> str:
    base = comparison.baseline.cost
    parts = []
    for key, words in (AXES | {"bytes_to_serve": "memory to serve"}).items():
        if base.get(key) and key in v.cost:
            if key == "step_seconds" and not _paces_differ(v, comparison.baseline):
                continue
            change = v.cost[key] / base[key] - 1
            if abs(change) >= (0.005 if key == "bytes_to_serve" else 0.05):
                parts.append(f"{words} {share(change)}")
    return f"{v.label}: {', '.join(parts)} against {comparison.baseline.label}." if parts else ""
