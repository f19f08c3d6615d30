"""Single examples out of a comparison: those that every run gets wrong, and pairs on which two
tasks of one model contradict each other. Texts are read again from where the recipe says, and shown
only if they are still the rows that were judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.data import rows
from bough.data.rows import Rows
from bough.errors import UserError
from bough.recipe.sources import Hub
from bough.recipe.tasks import SPLITS, Task
from bough.scoring.statistics import Floats

WORST = 10  # examples shown at first
PER_KIND = 3  # and kept for each way of being wrong
ASKED = 100  # pairs of each task that the tasks are asked about
ALIKE = 0.3  # correlation from which two tasks are taken to measure the same thing

Texts = dict[str, list[tuple[str, ...]]]


@dataclass(frozen=True)
class Example:
    """A row that the runs had trouble with."""

    number: int  # its place in the split
    id: str
    texts: tuple[str, ...]  # empty where the data is gone
    truth: str
    said: str  # the most common answer, or the mean one
    wrong: int  # runs that got it wrong; of numbers, those off by more than a tenth of the range
    runs: int
    miss: float  # mean over runs: 1 - probability of the truth, or distance from it


def texts(found: Comparison) -> tuple[Texts, list[str]]:
    """The texts of every task whose rows are still there, and why others are not shown."""
    there: Texts = {}
    gone = []
    for name in found.metrics:
        variant = next(v for v in found.variants if name in v.recipe.tasks)
        try:
            own = _read(found, variant, name)
        except UserError as mistake:
            gone.append(f"{name}: texts not shown ({mistake})")
            continue
        judged = variant.runs[0].environment["data"][name][found.split]["sha256"]
        if rows.digest(own) != judged:
            gone.append(f"{name}: texts not shown, the data has changed since it was judged")
            continue
        there[name] = own.texts
    return there, gone


def _read(found: Comparison, variant: Variant, name: str) -> Rows:
    recipe = variant.recipe
    task = recipe.tasks[name]
    labels = found.answers[variant.label, name][0].labels
    if isinstance(getattr(task, found.split), Hub):
        raise UserError("they are a set on the hub, which is not asked again")
    if labels and task.labels is None:
        task = task.with_labels(labels)  # so that the train rows need not be read for them
    split: Literal["train", "dev", "test"] = next(s for s in SPLITS if s == found.split)
    return rows.load(name, task, root=recipe.root, policy=recipe.rows, splits=[split])[1][split]


def worst(found: Comparison, name: str, known: Mapping[str, Any]) -> list[Example]:
    """Rows by how wrong the runs of all variants are about them in the mean, worst first.

    The first few of all, and the first few of each way of being wrong.
    """
    answers = [a for (_, task), own in found.answers.items() if task == name for a in own]
    first = answers[0]
    truth, labels = first.truth, first.labels
    if labels:
        everyone = np.array([a.probabilities for a in answers], float)
        miss = 1 - everyone[:, np.arange(len(truth)), truth].mean(0)
        wrong = np.array([a.said != truth for a in answers])
        votes = np.array([np.sum([a.said == c for a in answers], 0) for c in range(len(labels))])
        said = [labels[c] for c in votes.argmax(0)]
        true = [labels[c] for c in truth]
    else:
        every = np.array([a.said for a in answers])
        miss = np.abs(every - truth).mean(0)
        wrong = np.abs(every - truth) > 0.1 * (float(np.ptp(truth)) or 1.0)
        said = [f"{v:.2f}" for v in every.mean(0)]
        true = [f"{v:g}" for v in truth]
    order = np.argsort(-miss, kind="stable")
    kept: list[Example] = []
    seen: dict[tuple[str, str], int] = {}
    for i in order:
        kind = (true[i], said[i])
        if len(kept) >= WORST and (
            not labels or true[i] == said[i] or seen.get(kind, 0) >= PER_KIND
        ):
            continue
        seen[kind] = seen.get(kind, 0) + 1
        own = known[name][i] if name in known else ()
        kept.append(
            Example(
                int(i),
                first.ids[i],
                own,
                *kind,
                wrong=int(wrong[:, i].sum()),
                runs=len(answers),
                miss=float(miss[i]),
            )
        )
        if len(kept) >= 60:
            break
    return kept


# --- contradictions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contradiction:
    """A pair about which two tasks of one model say things that do not go together."""

    texts: tuple[str, ...]
    answers: tuple[str, str]
    gap: float  # from 0, agreement, to 1
    source: str  # the task whose row it is
    truth: str


@dataclass(frozen=True)
class Contradictions:
    """Two tasks that measure alike, and where they part."""

    tasks: tuple[str, str]
    correlation: float
    asked: int
    apart: int  # pairs that they place more than half of the scale apart
    worst: tuple[Contradiction, ...]


def contradictions(
    variant: Variant, known: Texts, truths: Mapping[str, Sequence[str]]
) -> tuple[list[Contradictions], str]:
    """Ask the variant's first model both tasks about the same pairs; or why that cannot be done."""
    pairs = [n for n, t in variant.recipe.tasks.items() if t.paired and n in known]
    if len(pairs) < 2:
        return [], "fewer than two tasks judge pairs of texts that are at hand"
    if not (variant.runs[0].model / "model.safetensors").is_file():
        return [], "the run's weights are not there any more"
    from bough.inference.load import load  # torch, only now

    try:
        model = load(variant.runs[0])
    except UserError as mistake:
        return [], str(mistake)
    asked: list[tuple[tuple[str, ...], str, str]] = []
    for name in pairs:
        every = max(1, len(known[name]) // ASKED)
        places = range(0, len(known[name]), every)[:ASKED]
        asked += [(known[name][i], name, truths[name][i]) for i in places]
    fitting = [n for n in pairs if model.tasks[n].kind == "regress" or model.tasks[n].classes == 2]
    if len(fitting) < 2:
        return [], "fewer than two tasks on pairs answer on one scale"
    said = model.predict([(t[0], t[1]) for t, _, _ in asked], fitting)
    scales = {n: np.array([_scale(model.tasks[n], own[n]) for own in said]) for n in fitting}
    found = []
    for i, a in enumerate(fitting):
        for b in fitting[i + 1 :]:
            words = [(_words(a, own[a]), _words(b, own[b])) for own in said]
            if (one := _between((a, b), scales[a], scales[b], asked, words)) is not None:
                found.append(one)
    return found, "" if found else "no two tasks on pairs measure alike"


def _scale(task: Task, answer: Any) -> float:
    """From 0 to 1: the place in the range, or the probability of the second class."""
    if task.range is not None and task.kind == "regress":
        low, high = task.range
        return float((answer.value - low) / (high - low))
    return float(answer.probabilities[(task.labels or ("", ""))[1]])


def _words(name: str, answer: Any) -> str:
    if answer.label is None:
        return f"{name} {answer.value:.1f}"
    return f"{name} “{answer.label}” ({answer.score * 100:.0f} %)"


def _between(
    tasks: tuple[str, str],
    a: Floats,
    b: Floats,
    asked: Sequence[tuple[tuple[str, ...], str, str]],
    words: Sequence[tuple[str, str]],
    most: int = 8,
) -> Contradictions | None:
    from scipy import stats

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    correlation = float(stats.spearmanr(a, b).statistic)
    if abs(correlation) < ALIKE:
        return None
    b = b if correlation > 0 else 1 - b
    gap = np.abs(a - b)
    apart = gap > 0.5
    order = [int(i) for i in np.argsort(-gap, kind="stable") if apart[i]][:most]
    listed = tuple(
        Contradiction(asked[i][0], words[i], float(gap[i]), asked[i][1], asked[i][2]) for i in order
    )
    return Contradictions(tasks, correlation, len(asked), int(apart.sum()), listed)
