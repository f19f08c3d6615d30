"""What a student loses against its teachers, task by task, and what both cost to ask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
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
from bough.scoring.statistics import Floats
from bough.scoring.tolerance import within
from bough.training.teachers.soft_answers import decided

ASKED = 40  # requests by which time is measured

Request = tuple[tuple[str, ...], ...]  # the texts of one


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
        return within(-self.value, tolerance)

    def certain(self, tolerance: float) -> bool:
        """Whether the rows exclude a loss of more than twice the tolerance."""
        return within(self.half - self.value, 2 * tolerance)

    def __str__(self) -> str:
        return f"{self.task} {number(self.value, signed=True)} ± {number(self.half)}"


@dataclass(frozen=True)
class Price:
    """What it takes to ask some models."""

    models: int
    bytes: int  # of weights
    seconds: float  # for all answers to a request
    request: str  # what is asked about: a text, a pair, or one of each

    def __str__(self) -> str:
        called = "1 model" if self.models == 1 else f"{self.models} models"
        return f"{called}, {size(self.bytes)}, {seconds(self.seconds)} {self.request}"


def changes(found: Sequence[Donor], run: Run) -> list[Change]:
    """Each task's, on the dev rows, which neither has learned from.

    A donor that is a run was the best of its moments on them, which is against the student; among
    plans the first is taken that does well on them, which is for it.
    """
    data = Data.gather(run.recipe(), ["dev"])
    out = []
    for donor in found:
        metric, before, base, mine = both(donor, run, data)
        apart = statistics.difference([mine[None]], [0], [base[None]], [0])
        agree = not donor.labelled
        out.append(Change(donor.name, metric, before, apart.value, apart.half(), agree))
    return out


def both(donor: Donor, run: Run, data: Data) -> tuple[str, float, Floats, Floats]:
    """The metric, the teacher's score, and how its score and the student's hang on each row."""
    task = data.tasks[donor.name]
    ours = Answers.read(run, donor.name, "dev", task.kind)
    theirs = donor.answers(data.rows[donor.name]["dev"].texts)
    shares = theirs.numpy() if task.labels else None
    metric, classes = task.metric_name, len(task.labels or ())
    score, base = pseudo_values(metric, decided(task, theirs), ours.truth, classes, shares)
    _, mine = pseudo_values(metric, *ours.judged)
    return metric, score, base, mine


def price(models: Sequence[Model], requests: Sequence[Request]) -> Price:
    """Bytes, and the time in which all of them have answered a request, one after the other.

    A request has a text of each form that the tasks read: a model that answers a text and a pair is
    asked about both at once, in one pass.
    """
    weights = sum(4 * sum(p.numel() for p in model.network.parameters()) for model in models)
    taken = []
    for request in (requests[0], *requests):  # the first warms memory and threads up
        began = time.perf_counter()
        for model in models:
            forms = {task.paired for task in model.tasks.values()}
            model.predict([text_of(words) for words in request if (len(words) == 2) in forms])
        taken.append(time.perf_counter() - began)
    called = " and ".join("a pair" if len(words) == 2 else "a text" for words in requests[0])
    return Price(len(models), weights, median(taken[1:]), called)


def requests_of(texts: Sequence[Sequence[tuple[str, ...]]]) -> list[Request]:
    """From the texts of each task, of all tasks alike: a text and a pair, or what they read."""
    forms = [[of_task for of_task in texts if len(of_task[0]) == parts] for parts in (1, 2)]
    alike = [chain.from_iterable(zip(*of_form, strict=False)) for of_form in forms if of_form]
    return list(islice(zip(*alike, strict=False), ASKED))
