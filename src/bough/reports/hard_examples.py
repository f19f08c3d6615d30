"""Single examples out of a comparison: those that the runs get most wrong.

Texts are read again from where the recipe says, and shown only if they are still the rows that were
judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

from bough.comparison.compare import Comparison
from bough.comparison.groups import Variant
from bough.data import checked_rows
from bough.data.checked_rows import Rows
from bough.errors import UserError
from bough.recipe.sources import Hub
from bough.recipe.tasks import SPLITS, on_one_table
from bough.runs.predictions import Answers
from bough.scoring.statistics import Floats
from bough.spans.schemes import Span

WORST = 10  # examples shown at first
PER_KIND = 3  # and kept for each way of being wrong
MOST = 60  # kept in all, but for those that the page leads to

Texts = dict[str, Sequence[tuple[str, ...]]]


@dataclass(frozen=True)
class Example:
    """A row that the runs had trouble with."""

    number: int  # its place in the split
    id: str
    texts: tuple[str, ...]  # empty where the data is gone
    truth: str
    answer: str  # the commonest wrong one, the truth where no run is wrong; of numbers the mean
    wrong: int  # runs that got it wrong; of numbers, those off by more than a tenth of the range
    runs: int
    miss: float  # mean over runs: 1 - probability of the truth, distance from it, or wrong spans

    @property
    def confusion(self) -> tuple[str, str]:
        return self.truth, self.answer


def read_texts(comparison: Comparison) -> tuple[Texts, list[str]]:
    """The texts of every task whose rows are still there, and why others are not shown."""
    texts: Texts = {}
    missing = []
    for name in comparison.metrics:
        variant = next(v for v in comparison.variants if name in v.recipe.tasks)
        try:
            read = _read(comparison, variant, name)
        except UserError as error:
            missing.append(f"{name}: texts not shown ({error})")
            continue
        judged = variant.runs[0].environment["data"][name][comparison.split]["sha256"]
        if checked_rows.digest(read) == judged:
            texts[name] = read.texts
        else:
            missing.append(f"{name}: texts not shown, the data has changed since it was judged")
    return texts, missing


def _read(comparison: Comparison, variant: Variant, name: str) -> Rows:
    recipe = variant.recipe
    task = recipe.tasks[name]
    labels = comparison.answers[variant.label, name][0].labels
    if isinstance(getattr(task, comparison.split), Hub):
        raise UserError("they are a set on the hub, which is not asked again")
    if labels and task.labels is None:
        task = task.with_labels(labels)  # so that the train rows need not be read for them
    split: Literal["train", "dev", "test"] = next(s for s in SPLITS if s == comparison.split)
    gaps = name in on_one_table(recipe.tasks)
    return checked_rows.load(
        name, task, root=recipe.root, policy=recipe.rows, splits=[split], gaps=gaps
    )[1][split]


def _misses(
    first: Answers, runs: Sequence[Answers], answers: NDArray[Any]
) -> tuple[Floats, NDArray[np.bool_], list[tuple[str, str]]]:
    """How far the runs are off in the mean, which of them are wrong, and the truth of each row with
    what those that are wrong say most often: beside the truth again, it would read as right."""
    truth = first.truth
    match first.kind:
        case "classify" | "ordinal":
            probabilities = np.array([run.probabilities for run in runs], float)
            miss = 1 - probabilities[:, np.arange(len(truth)), truth].mean(0)
            wrong = answers != truth
            classes = range(len(first.labels))
            votes = np.array([((answers == c) & wrong).sum(0) for c in classes])
            said = np.where(wrong.any(0), votes.argmax(0), truth)
        case "multilabel":
            probabilities = np.array([run.probabilities for run in runs], float)
            miss = np.abs(probabilities - truth).mean((0, 2))
            wrong = (answers != truth).any(2)
            rows = zip(answers.transpose(1, 0, 2), wrong.T, truth, strict=True)
            said = np.array([_commonest(map(tuple, own[w]), t) for own, w, t in rows])
        case "regress":
            miss = np.abs(answers - truth).mean(0)
            wrong = np.abs(answers - truth) > 0.1 * (float(np.ptp(truth)) or 1.0)
            means = answers.mean(0)
            kinds = [(f"{t:g}", f"{v:.2f}") for t, v in zip(truth, means, strict=True)]
            return miss, wrong, kinds
        case "tag":
            raise ValueError("spans are right or wrong one by one")
        case _:
            assert_never(first.kind)
    return miss, wrong, [(first.word(t), first.word(v)) for t, v in zip(truth, said, strict=True)]


def worst(
    comparison: Comparison,
    name: str,
    texts: Texts,
    told: Collection[tuple[str, str]] = (),
) -> list[Example]:
    """Rows by how wrong the runs of all variants are about them in the mean, worst first.

    The first few of all, and the first few of each way of being wrong: of many ways not of every
    one, but of those that the page has `told` of, as truth and answer.
    """
    runs = [run for (_, task), own in comparison.answers.items() if task == name for run in own]
    first = runs[0]
    if first.kind == "tag":
        return _worst_marked(runs, texts.get(name))
    answers = np.array([run.said for run in runs])
    miss, wrong, kinds = _misses(first, runs, answers)
    kept: list[int] = []
    seen: Counter[tuple[str, str]] = Counter()
    for i in np.argsort(-miss, kind="stable").tolist():
        true, answer = kind = kinds[i]
        confused = first.labels and true != answer and seen[kind] < PER_KIND
        if len(kept) < WORST or (confused and (len(kept) < MOST or kind in told)):
            seen[kind] += 1
            kept.append(i)
    return [
        Example(
            number=i,
            id=first.ids[i],
            texts=texts[name][i] if name in texts else (),
            truth=kinds[i][0],
            answer=kinds[i][1],
            wrong=int(wrong[:, i].sum()),
            runs=len(runs),
            miss=float(miss[i]),
        )
        for i in kept
    ]


def _worst_marked(
    runs: Sequence[Answers], texts: Sequence[tuple[str, ...]] | None
) -> list[Example]:
    """Texts by their spans that were missed, or answered and are none."""
    first = runs[0]
    rows = []
    for i, truth in enumerate(first.truth):
        said = [run.said[i] for run in runs]
        missed = [len(set(truth) ^ set(own)) for own in said]
        text = () if texts is None else texts[i]
        rows.append(
            Example(
                number=i,
                id=first.ids[i],
                texts=text,
                truth=_shown(truth, text),
                answer=_shown(_commonest(compress(said, missed), truth), text),
                wrong=sum(map(bool, missed)),
                runs=len(runs),
                miss=sum(missed) / len(runs),
            )
        )
    return sorted((row for row in rows if row.wrong), key=lambda row: -row.miss)[:MOST]


def _commonest(answers: Iterable[Any], otherwise: Any) -> Any:
    return next((answer for answer, _ in Counter(answers).most_common(1)), otherwise)


def _shown(spans: Sequence[Span], text: Sequence[str]) -> str:
    words = [
        f"{text[0][start:end] if text else f'{start}-{end}'} ({label})"
        for start, end, label in spans
    ]
    return ", ".join(words) or "no spans"
