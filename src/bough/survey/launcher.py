"""The runs of a survey, some at a time, until all are done: as processes here, or on a cluster."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bough import stop_signals
from bough.distributed import environment_alone
from bough.files import write_atomically
from bough.runs.lock import BUSY
from bough.survey.cells import RunSpec
from bough.survey.progress import Progress
from bough.survey.survey_dir import SurveyDir, free

PAUSE = 0.2  # seconds between two looks at the processes
# -P: what lies in the folder that the survey is started in is data, never code to be imported.
COMMAND: tuple[str, ...] = (sys.executable, "-P", "-m", "bough.cli.worker")
TAIL = 60  # lines of a failed run's output that are kept with its error

Outcome = Literal["done", "failed", "stopped", "pruned"]
Keep = Literal["scores", "models", "all"]


class Scheduler(Protocol):
    """Where runs come from, and outcomes go."""

    def ask(self) -> RunSpec | None:
        """The next run to start, if there is one now."""

    def tell(self, spec: RunSpec, outcome: Outcome) -> Sequence[RunSpec]:
        """Take note of it; the runs that for this are not to be started any more."""

    def should_prune(self, spec: RunSpec) -> bool:
        """Whether a running one is not worth going on with."""


class GridScheduler:
    """Runs that are all known from the start."""

    def __init__(self, specs: Sequence[RunSpec], folder: SurveyDir):
        self.queue = deque(s for s in specs if folder.state(s.name) not in ("done", "failed"))

    def ask(self) -> RunSpec | None:
        return self.queue.popleft() if self.queue else None

    def tell(self, spec: RunSpec, outcome: Outcome) -> Sequence[RunSpec]:
        return ()

    def should_prune(self, spec: RunSpec) -> bool:
        return False


class Job(Protocol):
    """A run under way, wherever that is."""

    def poll(self) -> int | None:
        """Its exit code; None while it goes on."""

    def terminate(self) -> None:
        """Let it stop after its step, with a checkpoint."""

    def kill(self) -> None:
        """End it at once."""


Start = Callable[[SurveyDir, RunSpec, Keep], Job]


class LocalProcess:
    """A run as a process of this machine."""

    def __init__(self, folder: SurveyDir, spec: RunSpec, keep: Keep):
        run = folder.run(spec.name)
        verb = ["--resume", str(run.folder)]
        if not run.recipe_file.is_file():
            verb = [str(folder.recipe(spec.name)), "-o", str(run.folder)]
        with open(folder.log(spec.name), "ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "train", *verb],
                stdin=subprocess.PIPE,  # see `cli.worker`
                stdout=log,
                stderr=log,
                env=environment_alone(),
                start_new_session=True,  # Ctrl-C is ours to hear; we tell the runs
            )

    def poll(self) -> int | None:
        code = self.process.poll()
        if code is not None and self.process.stdin is not None:
            self.process.stdin.close()
        return code

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()


@dataclass
class Worker:
    """A run that is under way."""

    spec: RunSpec
    job: Job
    logged: int  # bytes of its log that earlier attempts wrote
    fresh: bool  # it was to begin the run, not to resume it
    pruned: bool = False
    signals: int = 0  # how often it was told to end

    def end(self, times: int = 1) -> None:
        """Let it stop after its step; at the second time at once."""
        if self.signals < times:
            self.signals = times
            with suppress(OSError):
                self.job.terminate() if times == 1 else self.job.kill()


@dataclass
class Launcher:
    """Up to so many runs at a time, until the scheduler has no more of them."""

    scheduler: Scheduler
    folder: SurveyDir
    workers: int
    progress: Progress
    keep: Keep = "models"
    start: Start = LocalProcess
    running: list[Worker] = field(default_factory=list)
    blocked: deque[RunSpec] = field(default_factory=deque)  # another process has their directories
    signals: int = 0

    def run(self) -> bool:
        """Do all runs; whether they were done, not stopped."""
        with stop_signals.heard(self._heard):
            try:
                while True:
                    if not self.signals:
                        self._start()
                    if not self.running and (self.signals or not self.blocked):
                        return not self.signals
                    self.progress.look([worker.spec for worker in self.running])
                    time.sleep(PAUSE)
                    self._collect()
                    for worker in self.running:
                        if self.signals:
                            worker.end(self.signals)
                        elif not worker.pruned and self.scheduler.should_prune(worker.spec):
                            worker.pruned = True
                            worker.end()
            finally:
                for worker in self.running:  # only a fault of ours leaves any
                    worker.end()

    def tidy(self, spec: RunSpec) -> None:
        """Drop what a finished run is not needed for any more."""
        run = self.folder.run(spec.name)
        if self.keep != "all":
            shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
        if self.keep == "scores":
            for file in run.model.glob("*.safetensors"):
                file.unlink()

    def _start(self) -> None:
        for _ in range(len(self.blocked)):
            if len(self.running) < self.workers:
                self._launch(self.blocked.popleft())
        while len(self.running) < self.workers:
            spec = self.scheduler.ask()
            if spec is None:
                return
            self._launch(spec)

    def _launch(self, spec: RunSpec) -> None:
        run = self.folder.run(spec.name)
        if not free(run):  # of a survey that was killed, a worker may still be at its last step
            self.blocked.append(spec)
            return
        if run.finished:
            self._ended(spec, "done")
            return
        self.folder.add(spec)
        log = self.folder.log(spec.name)
        logged = log.stat().st_size if log.exists() else 0
        fresh = not run.recipe_file.is_file()
        self.running.append(Worker(spec, self.start(self.folder, spec, self.keep), logged, fresh))
        self.progress.started(spec)

    def _collect(self) -> None:
        for worker in list(self.running):
            code = worker.job.poll()
            if code is None:
                continue
            self.running.remove(worker)
            spec = worker.spec
            run = self.folder.run(spec.name)
            let_go = free(run)  # looked at first: whoever else is at it finishes it, then lets go
            # Another process began the run that ours was to begin; the next worker resumes it.
            overtaken = code == 2 and worker.fresh and run.recipe_file.is_file()
            if run.finished:
                self._ended(spec, "done")
            elif worker.pruned:
                shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
                self._ended(spec, "pruned")
            elif self.signals:
                self._ended(spec, "stopped")
            elif not let_go or code == BUSY or overtaken:
                self.blocked.append(spec)
            else:
                if not self.folder.failure(spec.name).is_file():  # else by who did the run for us
                    self._record(worker, code)
                self._ended(spec, "failed")

    def _ended(self, spec: RunSpec, outcome: Outcome) -> None:
        if outcome == "done":
            self.tidy(spec)
        dropped = self.scheduler.tell(spec, outcome)
        why = ""
        if outcome == "failed":
            why = self.folder.failure(spec.name).read_text(encoding="utf-8").splitlines()[0]
        self.progress.ended(spec, outcome, why)
        for other in dropped:
            done = self.folder.run(other.name).finished
            self._ended(other, "done" if done else "pruned")

    def _record(self, worker: Worker, code: int) -> None:
        """Keep the error of a failed run: the sentence first, then what it last wrote."""
        name = worker.spec.name
        log = self.folder.log(name)
        written = log.read_bytes()[worker.logged :] if log.exists() else b""
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
