"""The verdict: what a person takes away from a comparison, in plain words."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bough.comparison.compare import AXES, FEW, Comparison
from bough.comparison.groups import Variant
from bough.comparison.scores import Difference
from bough.formatting import and_then, less, number, share

# A loss that stays below, by its interval, counts as none. A judgement: two points in a hundred are
# less than the score of one run on 1,000 rows is uncertain by (± .03).
MARGIN = 0.02


@dataclass(frozen=True)
class Verdict:
    """What came out, in plain words."""

    headline: str
    tasks: dict[str, str]  # a sentence per task, and on the mean where something shows in it
    costs: tuple[str, ...]  # a sentence per variant that costs more or less
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        return [
            self.headline,
            *self.tasks.values(),
            *self.costs,
            *(f"Note: {n}" for n in self.notes),
        ]


def verdict(found: Comparison) -> Verdict:
    if not found.others:
        return _alone(found)
    told = list(found.metrics)
    if found.overall not in told and any(d.real for _, d in _apart(found, found.overall)):
        told.append(found.overall)  # what shows in the mean need not show in any task alone
    tasks = {name: _sentence(found, name) for name in told}
    costs = [text for v in found.others if (text := _cost(found, v))]
    return Verdict(_headline(found), tasks, tuple(costs), found.notes)


def _alone(found: Comparison) -> Verdict:
    only, many = found.baseline, len(found.baseline.seeds)
    own = found.scores[only.label]
    tasks = {}
    for name, metric in found.metrics.items():
        low, high = own[name].interval
        tasks[name] = (
            f"{name}: {metric} {number(own[name].value)}, between {number(low)} and {number(high)}."
        )
    head = (
        f"One finished variant, {only.label}, on {_seeds(many)}: there is nothing to compare it "
        "with."
    )
    return Verdict(head, tasks, (), found.notes)


def _sentence(found: Comparison, name: str) -> str:
    """What happens to one task."""
    given = _apart(found, name)
    if not given:
        return f"{name}: not in the baseline, so there is nothing to compare it with."
    enough, two, one = (
        [(v.label, d) for v, d in given if least <= d.seeds < more]
        for least, more in ((FEW, sys.maxsize), (2, FEW), (1, 2))
    )
    base, parts = found.baseline.label, []
    # Where the headline calls all of it an anecdote, it need not be said again.
    mixed = any(d.seeds >= FEW for _, d in _apart(found, found.overall))
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


def _apart(found: Comparison, column: str) -> list[tuple[Variant, Difference]]:
    """The variants that can be held against the baseline there."""
    scores = ((v, found.scores[v.label].get(column)) for v in found.others)
    return [(v, s.difference) for v, s in scores if s is not None and s.difference is not None]


def _shown(name: str, base: str, given: Sequence[tuple[str, Difference]]) -> str:
    """Gains, losses, and what is neither as far as the seeds can show."""
    few = min(d.seeds for _, d in given)
    gains = [(label, d) for label, d in given if d.real and d.value > 0]
    losses = [(label, d) for label, d in given if d.real and d.value < 0]
    parts = []
    for verb, some in (("gains", gains), ("loses", losses)):
        if some:
            ordered = sorted(some, key=lambda pair: -abs(pair[1].value))
            parts.append(f"{verb} {and_then([_amount(label, d) for label, d in ordered])}")
    rest = [(label, d) for label, d in given if not d.real]
    if not parts:
        return f"{name}: no difference from {base} that {_seeds(few)} can show ({_unseen(rest)})."
    told = f"{name} {', and '.join(parts)} (against {base})"
    if rest:
        others = and_then([label for label, _ in rest]) if len(rest) < 5 else f"{len(rest)} others"
        told += f"; no difference that {_seeds(few)} can show with {others}"
    return told + "."


def _amount(label: str, d: Difference) -> str:
    return f"{number(abs(d.value))} ± {number(d.half)} with {label}"


def _unseen(rest: Sequence[tuple[str, Difference]]) -> str:
    """How large the differences look, and how large one would have to be."""
    values = [d.value for _, d in rest]
    return (
        f"{rest[0][0]} {number(values[0], signed=True)} ± {number(rest[0][1].half)}"
        if len(rest) == 1
        else f"{number(min(values), signed=True)} to {number(max(values), signed=True)}, "
        f"each ± {number(min(d.half for _, d in rest))} or more"
    )


def _seeds(many: int) -> str:
    return "one seed" if many == 1 else f"{many} seeds"


def _headline(found: Comparison) -> str:
    """The one or two sentences for someone who reads no more."""
    told = _apart(found, found.overall)
    if not told:
        return f"{len(found.variants)} variants, task by task (they have different tasks)."
    enough = [(v, d) for v, d in told if d.seeds >= FEW]
    if not enough:
        return _anecdote(found, told)
    few = [v.label for v, d in told if d.seeds < FEW]
    more = f" Not counted, with fewer than {FEW} seeds: {and_then(few)}." if few else ""
    return _finding(found, enough) + more


def _anecdote(found: Comparison, told: Sequence[tuple[Variant, Difference]]) -> str:
    base, what = found.baseline.label, f"{found.overall} score"
    counts = {len(v.seeds) for v in found.variants}
    fewer = f"fewer than {FEW} seeds on a side"
    many = f"{_seeds(counts.pop())} per variant" if len(counts) == 1 else fewer
    lead = f"An anecdote, not a finding ({many}): "
    best, d = max(told, key=lambda pair: pair[1].value)
    if d.value > 0 and (d.p is None or d.interval[0] > 0):
        above = f"{best.label} is {number(d.value)} above {base} in {what}"
        return f"{lead}{above}{_saving(found, best)}."
    none = "no variant is above" if d.value <= 0 else "no variant is shown to be above"
    return f"{lead}{none} {base} in {what}{_cheapest(found, [v for v, _ in told])}."


def _finding(found: Comparison, told: Sequence[tuple[Variant, Difference]]) -> str:
    base, what = found.baseline, f"{found.overall} score"
    best, d = max(told, key=lambda pair: pair[1].value)
    if d.real and d.value > 0:
        score = found.scores[best.label][found.overall].value
        return (
            f"{best.label} is best: {what} {number(score)}, {number(d.value)} ± {number(d.half)} "
            f"above {base.label}{_saving(found, best)}."
        )
    thrifty = [(v, d) for v, d in told if _bytes(v) < 0.98 * _bytes(base)]
    every = [*found.metrics, found.overall]
    safe = [(v, d) for v, d in thrifty if _loss(found, v, every)[0] < MARGIN]
    if safe:
        v, d = min(safe, key=lambda pair: _bytes(pair[0]))
        cut = less(_bytes(v) / _bytes(base) - 1)
        most, _ = _loss(found, v, found.metrics)
        loses = f"loses at most {_at_most(most)}" if most > 0 else "loses nothing"
        return (
            f"{v.label} serves all tasks with {cut} memory and {loses} on any task "
            f"({_seeds(d.seeds)}, against {base.label})."
        )
    unharmed = [(v, d) for v, d in thrifty if not _harmed(found, v)]
    if unharmed:
        v, d = min(unharmed, key=lambda pair: _bytes(pair[0]))
        most, name = _loss(found, v, found.metrics)
        return (
            f"{v.label} saves {abs(_bytes(v) / _bytes(base) - 1) * 100:.0f} % of memory; with "
            f"{_seeds(d.seeds)} a loss of up to {_at_most(most)} on {name} cannot be ruled out "
            f"({what} {number(d.value, signed=True)} ± {number(d.half)} against {base.label})."
        )
    if all(d.real and d.value < 0 for _, d in told):
        return f"{base.label} is best: every other variant scores less ({what})."
    few = _seeds(min(d.seeds for _, d in told))
    return f"No variant beats {base.label} by a difference that {few} can show ({what})."


def _loss(found: Comparison, v: Variant, columns: Iterable[str]) -> tuple[float, str]:
    """What may be lost at most by the 95 % intervals, and where."""
    apart = ((name, found.scores[v.label][name].difference) for name in columns)
    return max((-d.interval[0], name) for name, d in apart if d is not None)


def _harmed(found: Comparison, v: Variant) -> bool:
    """Whether something may be worse, by its own interval: the correction for many comparisons
    would make it easier to look unharmed."""
    differences = (score.difference for score in found.scores[v.label].values())
    return any(d.interval[1] < 0 for d in differences if d)


def _at_most(value: float) -> str:
    """Rounded up, for a bound must not shrink."""
    return number(math.ceil(round(value * 1000, 6)) / 1000)


def _bytes(v: Variant) -> float:
    return v.cost.get("bytes_to_serve", float("inf"))


def _cheapest(found: Comparison, told: Sequence[Variant]) -> str:
    thrifty = min(told, key=_bytes)
    saving = _saving(found, thrifty).removeprefix(",")
    return f"; {thrifty.label} comes{saving}" if saving else ""


def _saving(found: Comparison, v: Variant) -> str:
    change = _bytes(v) / _bytes(found.baseline) - 1
    return f", with {less(change)} memory" if abs(change) > 0.02 else ""


def _cost(found: Comparison, v: Variant) -> str:
    base = found.baseline.cost
    parts = []
    for key, words in (("bytes_to_serve", "memory to serve"), *list(AXES.items())[1:]):
        if base.get(key) and key in v.cost:
            change = v.cost[key] / base[key] - 1
            if abs(change) >= (0.005 if key == "bytes_to_serve" else 0.05):
                parts.append(f"{words} {share(change)}")
    return f"{v.label}: {', '.join(parts)} against {found.baseline.label}." if parts else ""
