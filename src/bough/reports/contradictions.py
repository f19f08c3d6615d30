"""Pairs of texts on which two tasks of one model contradict each other.

The best variant's first model is asked all its tasks on pairs about the same pairs. Tasks that
answer on one scale and go together contradict each other where they are far apart on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from bough.comparison.compare import Comparison
from bough.errors import UserError
from bough.recipe.tasks import Task
from bough.reports.hard_examples import Texts
from bough.runs.run_dir import Run
from bough.scoring.statistics import Floats

if TYPE_CHECKING:  # torch is loaded only where a model is asked
    from bough.inference.answers import Answer

ASKED = 100  # pairs of each task that the tasks are asked about
ALIKE = 0.3  # correlation from which two tasks are taken to measure the same thing
LISTED = 8


@dataclass(frozen=True)
class Question:
    """A pair that all tasks are asked about, and what is known of it."""

    texts: tuple[str, ...]
    source: str  # the task whose row it is
    truth: str


@dataclass(frozen=True)
class Contradiction:
    """A pair about which two tasks of one model say things that do not go together."""

    question: Question
    answers: tuple[str, str]
    gap: float  # from 0, agreement, to 1


@dataclass(frozen=True)
class TwoTasks:
    """Two tasks that measure alike, and where they part."""

    tasks: tuple[str, str]
    correlation: float
    asked: int
    apart: int  # pairs that they place more than half of the scale apart
    worst: tuple[Contradiction, ...]


@dataclass(frozen=True)
class Contradictions:
    """What the model of a variant's first seed said, or why it was not asked."""

    label: str
    seed: int
    pairs: list[TwoTasks]
    why_not: str = ""


def contradictions(comparison: Comparison, texts: Texts) -> Contradictions | None:
    """Of the best variant; None where it has fewer than two tasks on pairs."""
    column = comparison.overall
    having = [v for v in comparison.variants if column in comparison.scores[v.label]]
    if not having or sum(task.paired for task in having[0].recipe.tasks.values()) < 2:
        return None
    best = max(having, key=lambda v: comparison.scores[v.label][column].value)
    questions = []
    paired = [name for name, task in best.recipe.tasks.items() if task.paired and name in texts]
    for name in paired:
        answers = comparison.answers[best.label, name][0]
        rows = len(texts[name])
        most = min(rows, ASKED)
        chosen = [n * rows // most for n in range(most)]  # from all of the file, evenly
        questions += [
            Question(texts[name][i], name, answers.word(answers.truth[i])) for i in chosen
        ]
    try:
        if len(paired) < 2:
            raise UserError("fewer than two tasks judge pairs of texts that are at hand")
        pairs = _ask(best.runs[0], paired, questions)
    except UserError as why:
        return Contradictions(best.label, best.seeds[0], [], str(why))
    return Contradictions(best.label, best.seeds[0], pairs)


def _ask(run: Run, names: Sequence[str], questions: Sequence[Question]) -> list[TwoTasks]:
    if not (run.model / "model.safetensors").is_file():
        raise UserError("the run's weights are not there any more")
    from bough.inference.load import load  # torch, only now

    model = load(run)
    fitting = [n for n in names if _one_scale(model.tasks[n])]
    if len(fitting) < 2:
        raise UserError("fewer than two tasks on pairs answer on one scale")
    answers = model.predict([(q.texts[0], q.texts[1]) for q in questions], fitting)
    places = {n: np.array([_place(model.tasks[n], a[n]) for a in answers]) for n in fitting}
    pairs = []
    for a, b in combinations(fitting, 2):
        words = [(_words(a, answer[a]), _words(b, answer[b])) for answer in answers]
        if (two := between((a, b), places[a], places[b], questions, words)) is not None:
            pairs.append(two)
    if not pairs:
        raise UserError("no two tasks on pairs measure alike")
    return pairs


def _one_scale(task: Task) -> bool:
    """Whether its answers lie on a scale from one end to another."""
    return task.range is not None or (task.kind == "classify" and task.classes == 2)


def _place(task: Task, answer: Answer) -> float:
    """From 0 to 1: the place in the range, or the probability of the second class."""
    if task.range is not None and answer.value is not None:
        low, high = task.range
        return (answer.value - low) / (high - low)
    assert task.labels is not None
    assert answer.probabilities is not None
    return answer.probabilities[task.labels[1]]


def _words(name: str, answer: Answer) -> str:
    if answer.label is None:
        return f"{name} {answer.value:.1f}"
    return f"{name} “{answer.label}” ({(answer.score or 0) * 100:.0f} %)"


def between(
    tasks: tuple[str, str],
    a: Floats,
    b: Floats,
    questions: Sequence[Question],
    words: Sequence[tuple[str, str]],
) -> TwoTasks | None:
    """How two tasks that place the questions at `a` and `b` go together; None if they do not."""
    from scipy import stats

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    correlation = float(stats.spearmanr(a, b).statistic)
    if abs(correlation) < ALIKE:
        return None
    gap = np.abs(a - (b if correlation > 0 else 1 - b))
    order = [i for i in np.argsort(-gap, kind="stable").tolist() if gap[i] > 0.5]
    worst = tuple(Contradiction(questions[i], words[i], float(gap[i])) for i in order[:LISTED])
    return TwoTasks(tasks, correlation, len(questions), len(order), worst)
