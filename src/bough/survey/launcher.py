"""Fleet: the runs of a survey as processes, some at a time, until all are done.

Nothing is remembered that is not on disk. A run is done when its directory has scores, failed when
`failures/` has its error, and anything else is begun or resumed. So a survey that was stopped or
killed goes on where it was, and no run is done twice.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from bough import signals
from bough.errors import UserError
from bough.files import write_atomically
from bough.recipe.raw_settings import flattened
from bough.runs.lock import LockedError, locked
from bough.runs.run_dir import Run
from bough.survey.progress import Board
from bough.survey.spec import RunSpec, Survey, applied

FILE = "survey.yaml"
PAUSE = 0.2  # seconds between two looks at the processes
COMMAND = (sys.executable, "-m", "bough.cli.worker")
TAIL = 60  # lines of a failed run's output that are kept with its error

State = Literal["done", "failed", "begun", "waiting"]
Outcome = Literal["done", "failed", "stopped", "pruned"]
Keep = Literal["scores", "models", "all"]


@dataclass(frozen=True)
class Folder:
    """A survey's directory: `survey.yaml`, `runs/`, `recipes/`, `logs/`, `failures/`."""

    path: Path

    def run(self, name: str) -> Run:
        return Run(self.path / "runs" / name)

    def failure(self, name: str) -> Path:
        return self.path / "failures" / f"{name}.txt"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.txt"

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

    def settle(self, survey: Survey) -> None:
        """Write down what is to be run; what was begun here must be a part of it."""
        old = self.survey
        if old == survey:
            return
        for difference in () if old is None else differences(old, survey):
            raise UserError(
                f"{self.path}: holds another survey ({difference}); choose another place with -o"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / FILE, survey.dump())


def differences(old: Survey, new: Survey) -> Iterator[str]:
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
    pairs = {cell: (own, new.cells.get(cell, {})) for cell, own in old.cells.items()}
    for cell, (before, now) in (pairs or {"the base": ({}, {})}).items():
        recipes = (applied(old.base, before, cell), applied(new.base, now, cell))
        there, here = (flattened(recipe.model_dump(mode="json")) for recipe in recipes)
        for key in {**there, **here}:
            if there.get(key) != here.get(key):
                a, b = (json.dumps(own.get(key)) for own in (there, here))
                yield f"{key} of {cell} is {a} there and {b} here"


class Work(Protocol):
    """Where orders come from, and outcomes go."""

    def take(self) -> RunSpec | None:
        """The next run to start, if there is one now."""

    def tell(self, order: RunSpec, outcome: Outcome) -> Sequence[RunSpec]:
        """Take note of it; the orders that for this are not to be started any more."""

    def hopeless(self, order: RunSpec) -> bool:
        """Whether a running one is not worth going on with."""


class Listed:
    """Orders that are all known from the start."""

    def __init__(self, orders: Sequence[RunSpec], folder: Folder):
        self.left = deque(o for o in orders if folder.state(o.name) not in ("done", "failed"))

    def take(self) -> RunSpec | None:
        return self.left.popleft() if self.left else None

    def tell(self, order: RunSpec, outcome: Outcome) -> Sequence[RunSpec]:
        return ()

    def hopeless(self, order: RunSpec) -> bool:
        return False


@dataclass
class Worker:
    """A run's process."""

    order: RunSpec
    process: subprocess.Popen[bytes]
    logged: int  # bytes of its log that earlier attempts wrote
    pruned: bool = False
    told: int = 0  # how often it was told to end

    def end(self, times: int = 1) -> None:
        """Let it stop after its step; at the second time at once."""
        if self.told < times:
            self.told = times
            with suppress(OSError):
                self.process.terminate() if times == 1 else self.process.kill()


class Launcher:
    """Up to so many processes at a time, until there is no more work."""

    def __init__(self, folder: Folder, workers: int, board: Board, keep: Keep = "models"):
        self.folder = folder
        self.workers = workers
        self.board = board
        self.keep = keep
        self.crew: list[Worker] = []
        self.blocked: deque[RunSpec] = deque()  # another process still has their directories
        self.signals = 0

    def run(self, work: Work) -> bool:
        """Do all of it; whether it was done, not stopped."""
        with signals.heard(self._heard):
            try:
                while True:
                    if not self.signals:
                        self._start(work)
                    if not self.crew and (self.signals or not self.blocked):
                        return not self.signals
                    self.board.look([worker.order for worker in self.crew])
                    time.sleep(PAUSE)
                    self._collect(work)
                    for worker in self.crew:
                        if self.signals:
                            worker.end(self.signals)
                        elif not worker.pruned and work.hopeless(worker.order):
                            worker.pruned = True
                            worker.end()
            finally:
                for worker in self.crew:  # only a fault of ours leaves any
                    worker.end()

    def tidy(self, order: RunSpec) -> None:
        """Drop what a finished run is not needed for any more."""
        run = self.folder.run(order.name)
        if self.keep != "all":
            shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
        if self.keep == "scores":
            for file in run.model.glob("*.safetensors"):
                file.unlink()

    def _start(self, work: Work) -> None:
        for _ in range(len(self.blocked)):
            if len(self.crew) < self.workers:
                self._launch(self.blocked.popleft(), work)
        while len(self.crew) < self.workers:
            order = work.take()
            if order is None:
                return
            self._launch(order, work)

    def _launch(self, order: RunSpec, work: Work) -> None:
        run = self.folder.run(order.name)
        if not _free(run):  # of a survey that was killed, a worker may still be at its last step
            self.blocked.append(order)
            return
        if run.finished:
            self._ended(order, "done", work)
            return
        for part in ("recipes", "logs", "runs"):
            (self.folder.path / part).mkdir(exist_ok=True)
        verb = ["--resume", str(run.folder)]
        if not run.recipe_file.is_file():
            recipe = self.folder.path / "recipes" / f"{order.name}.yaml"
            write_atomically(recipe, order.recipe.dump())
            verb = [str(recipe), "-o", str(run.folder)]
        with open(self.folder.log(order.name), "ab") as log:
            logged = log.tell()
            process = subprocess.Popen(
                [*COMMAND, "train", *verb],
                stdin=subprocess.PIPE,  # see `worker`
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to hear; we tell the runs
            )
        self.crew.append(Worker(order, process, logged))
        self.board.started(order)

    def _collect(self, work: Work) -> None:
        for worker in list(self.crew):
            code = worker.process.poll()
            if code is None:
                continue
            self.crew.remove(worker)
            if worker.process.stdin is not None:
                worker.process.stdin.close()
            order = worker.order
            run = self.folder.run(order.name)
            if run.finished:
                self._ended(order, "done", work)
            elif worker.pruned:
                shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
                self._ended(order, "pruned", work)
            elif self.signals:
                self._ended(order, "stopped", work)
            elif not _free(run):
                self.blocked.append(order)
            else:
                self._record(worker, code)
                self._ended(order, "failed", work)

    def _ended(self, order: RunSpec, outcome: Outcome, work: Work) -> None:
        if outcome == "done":
            self.tidy(order)
        dropped = work.tell(order, outcome)
        why = self.folder.failure(order.name)
        said = why.read_text(encoding="utf-8").splitlines()[0] if outcome == "failed" else ""
        self.board.ended(order, outcome, said)
        for other in dropped:
            done = self.folder.run(other.name).finished
            self._ended(other, "done" if done else "pruned", work)

    def _record(self, worker: Worker, code: int) -> None:
        """Keep the error of a failed run: the sentence first, then what it last wrote."""
        name = worker.order.name
        written = self.folder.log(name).read_bytes()[worker.logged :]
        lines = written.decode(errors="replace").splitlines()
        if code < 0:
            by = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            hint = ", perhaps for want of memory" if by == "SIGKILL" else ""
            sentence = f"its process was ended by {by}{hint}"
        else:
            sentence = _reason(lines) or f"its process ended with code {code}"
        file = self.folder.failure(name)
        file.parent.mkdir(exist_ok=True)
        kept = lines[-TAIL:]
        write_atomically(file, "\n".join([sentence, "", f"exit code {code}", "", *kept, ""]))

    def _heard(self) -> None:
        """Ctrl-C or SIGTERM: the runs stop after the step at hand; at the second time at once."""
        self.signals += 1


def _reason(lines: Sequence[str]) -> str:
    """Why a run failed, by its own words: its last sentence, or the error of a later traceback."""
    for number in reversed(range(len(lines))):
        if lines[number].startswith("bough: "):
            return lines[number].removeprefix("bough: ")
        if lines[number].startswith("Traceback "):
            rest = lines[number + 1 :]
            return next((line for line in rest if line and not line[0].isspace()), lines[-1])
    return lines[-1] if lines else ""


def _free(run: Run) -> bool:
    """Whether no process is writing this run."""
    if not run.folder.is_dir():
        return True
    try:
        with locked(run.folder / ".lock"):
            return True
    except LockedError:
        return False
    except UserError:  # any other trouble is for the run to tell
        return True
