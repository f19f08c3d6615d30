"""What a student loses against its teachers, task by task, and what both cost to ask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bough.data.dataset import Data
from bough.data.tokens import text_of
from bough.formatting import number, seconds, size
from bough.graft.donors import Donor
from bough.inference.model import Model
from bough.runs.predictions import Answers
from bough.runs.run_dir import Run
from bough.scoring import statistics
from bough.scoring.pseudo_values import pseudo_values
from bough.training.teachers.soft_answers import decided

ASKED = 40  # texts of each form by which time is measured


@dataclass(frozen=True)
class Change:
    """A student's score in one task less its teacher's, on the same rows."""

    task: str
    metric: str
    teacher: float
    value: float
    half: float  # of the 95 % interval of the difference
    agreement: bool  # the rows' labels are the teacher's own answers

    def fits(self, tolerance: float) -> bool:
        return self.value >= -tolerance

    def certain(self, tolerance: float) -> bool:
        """Whether the rows exclude a loss of more than twice the tolerance."""
        return self.value - self.half >= -2 * tolerance

    def __str__(self) -> str:
        return f"{self.task} {number(self.value, signed=True)} ± {number(self.half)}"


@dataclass(frozen=True)
class Price:
    """What it takes to ask some models."""

    models: int
    bytes: int  # of weights
    seconds: float  # for all answers to a text

    def __str__(self) -> str:
        called = "1 model" if self.models == 1 else f"{self.models} models"
        return f"{called}, {size(self.bytes)}, {seconds(self.seconds)} a text"


def changes(found: Sequence[Donor], run: Run) -> list[Change]:
    """Each task's, on the dev rows, which neither has learned from.

    A donor that is a run was the best of its moments on them, which is against the student; among
    plans the first is taken that does well on them, which is for it.
    """
    recipe = run.recipe()
    data = Data.gather(recipe, ["dev"])
    out = []
    for donor in found:
        ours = Answers.read(run, donor.name, "dev", recipe.tasks[donor.name].kind)
        task = data.tasks[donor.name]
        theirs = donor.answers(data.rows[donor.name]["dev"].texts)
        shares = theirs.numpy() if task.labels else None
        metric, classes = task.metric_name, len(task.labels or ())
        before, base = pseudo_values(metric, decided(task, theirs), ours.truth, classes, shares)
        _, mine = pseudo_values(metric, *ours.judged)
        apart = statistics.difference([mine[None]], [0], [base[None]], [0])
        agree = not donor.labelled
        out.append(Change(donor.name, metric, before, apart.value, apart.half(), agree))
    return out


def price(models: Sequence[Model], texts: Sequence[tuple[str, ...]]) -> Price:
    """Bytes, and the time in which all of them have answered a text, one after the other."""
    weights = sum(4 * sum(p.numel() for p in model.network.parameters()) for model in models)
    taken = []
    for words in texts:
        text, pair = text_of(words), len(words) == 2
        able = [m for m in models if any(t.paired == pair for t in m.tasks.values())]
        for model in able[:1]:  # memory and threads warm up
            model.predict(text)
        began = time.perf_counter()
        for model in able:
            model.predict(text)
        taken.append(time.perf_counter() - began)
    return Price(len(models), weights, median(taken))
