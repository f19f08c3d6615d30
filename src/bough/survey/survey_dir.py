"""A survey's directory: what was decided, and how far each run has come.

Nothing is remembered that is not on disk. A run is done when its directory has scores, failed when
`failures/` has its error, and anything else is begun or resumed. So a survey that was stopped or
killed goes on where it was, and no run is done twice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bough.comparison.cell_names import FILE
from bough.errors import UserError
from bough.files import write_atomically
from bough.recipe.raw_settings import flattened
from bough.recipe.recipe import Recipe
from bough.runs.lock import LockedError, locked
from bough.runs.run_dir import Run
from bough.survey.cells import RunSpec, with_overrides
from bough.survey.spec import Survey

JOURNALS = ("search.journal", "search.db")  # of a search, and of one from before
STEPS = ("metrics.jsonl", "checkpoint/state.pt", "scores.json")  # what a step leaves of a run

State = Literal["done", "failed", "begun", "waiting"]


@dataclass(frozen=True)
class SurveyDir:
    """A survey's directory: `survey.yaml`, `runs/`, `recipes/`, `logs/`, `failures/`."""

    path: Path

    def run(self, name: str) -> Run:
        return Run(self.path / "runs" / name)

    def failure(self, name: str) -> Path:
        return self.path / "failures" / f"{name}.txt"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.txt"

    def recipe(self, name: str) -> Path:
        return self.path / "recipes" / f"{name}.yaml"

    def add(self, spec: RunSpec) -> None:
        """All that a process needs to know of a run before it begins."""
        for part in ("recipes", "logs", "runs"):
            (self.path / part).mkdir(exist_ok=True)
        if not self.run(spec.name).recipe_file.is_file():
            write_atomically(self.recipe(spec.name), spec.recipe.dump())

    def state(self, name: str) -> State:
        run = self.run(name)
        if run.finished:
            return "done"
        if self.failure(name).is_file():
            return "failed"
        return "begun" if run.recipe_file.is_file() else "waiting"

    def locked(self) -> AbstractContextManager[None]:
        """Within, this process runs the survey, and no other."""
        return locked(self.path / ".lock", "survey")

    @property
    def survey(self) -> Survey | None:
        """What was decided before, if anything."""
        file = self.path / FILE
        return Survey.read(file) if file.is_file() else None

    @property
    def begun(self) -> bool:
        """Whether a run has taken a step here, or may at any moment; of a search, whether it has
        chosen a trial."""
        return (
            any((self.path / journal).is_file() for journal in JOURNALS)
            or any(file.is_file() for mark in STEPS for file in self.path.glob(f"runs/*/{mark}"))
            or any(not free(Run(file.parent)) for file in self.path.glob("runs/*/.lock"))
        )

    def settle(self, survey: Survey) -> None:
        """Write down what is to be run; what was begun here must be a part of it."""
        old = self.survey
        if old == survey:
            return
        obstacle = None if old is None else next(_changes(old, survey), None)
        if obstacle is not None:
            if self.begun or survey.search is not None:  # several processes search in a directory
                raise UserError(
                    f"{self.path}: holds another survey ({obstacle}); choose another place with -o"
                )
            self._forget()
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / FILE, survey.dump())

    def _forget(self) -> None:
        """Let go of all that was written for runs that never took a step."""
        for name in [file.stem for file in self.path.glob("recipes/*.yaml")]:
            shutil.rmtree(self.run(name).folder, ignore_errors=True)
            for file in (self.failure(name), self.log(name), self.recipe(name)):
                file.unlink(missing_ok=True)


def _changes(old: Survey, new: Survey) -> Iterator[str]:
    """Why `new` cannot go on in the directory of `old`; it may have more cells, seeds, trials."""
    if (old.search is None) != (new.search is None):
        yield "one is a search, the other is not"
        return
    if old.search is not None and new.search is not None:
        trials = {"trials": 1}
        if old.search.model_copy(update=trials) != new.search.model_copy(update=trials):
            yield "the searches differ"
        if old.seeds != new.seeds:
            yield f"its seeds are {list(old.seeds)}"
    for seed in old.seeds:
        if seed not in new.seeds:
            yield f"it has the seed {seed}, which this has not"
    for cell in old.cells:
        if cell not in new.cells:
            yield f"it has a cell {cell!r}, which this has not"
    for cell in old.cells or ("the base",):
        there, here = (flattened(_of_cell(s, cell).model_dump(mode="json")) for s in (old, new))
        for key in {**there, **here}:
            if there.get(key) != here.get(key):
                a, b = (json.dumps(keys.get(key)) for keys in (there, here))
                yield f"{key} of {cell} is {a} there and {b} here"


def _of_cell(survey: Survey, cell: str) -> Recipe:
    return with_overrides(survey.base, survey.cells.get(cell, {}), lambda key: cell)


def free(run: Run) -> bool:
    """Whether no process is writing this run."""
    if not run.folder.is_dir():
        return True
    try:
        with locked(run.folder / ".lock"):
            pass
    except LockedError:
        return False
    except UserError:  # any other trouble is for the run to tell
        pass
    return True
