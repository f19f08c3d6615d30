"""Trackers of a run: what is logged is also sent to TensorBoard or Weights & Biases.

The run directory stays the truth; a tracker that fails is left behind, and the run goes on.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bough.errors import UserError, nearest
from bough.extras import install_line
from bough.runs.console import NO_METRICS, Display, HandingOn, Silent


class Tracker(Silent):
    """Sends the numbers of a run; its client is opened with the first of them."""

    name: ClassVar[str]

    def __init__(self, folder: Path):
        self.folder = folder
        self.client: Any = None

    def log(self, entry: Mapping[str, Any]) -> None:
        self._send(entry["step"], dict(log_values(entry)))

    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None:
        self._send(step, dict(score_values(scores)))

    @abstractmethod
    def _send(self, step: int, values: Mapping[str, float]) -> None: ...


class TensorBoard(Tracker):
    """Event files in the run's folder `tensorboard`: see them with `tensorboard --logdir runs`."""

    name = "tensorboard"

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        if self.client is None:
            from torch.utils.tensorboard import SummaryWriter

            # A resumed run may go back some steps: those are made anew.
            self.client = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step)
        for name, value in values.items():
            self.client.add_scalar(name, value, step)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None


class WandB(Tracker):
    """A run of the same name in the project that WANDB_PROJECT names, by default `bough`.

    Where there is no network, WANDB_MODE=offline keeps it in the run's folder `wandb`.
    """

    name = "wandb"

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        if self.client is None:
            self.client = self._open()
        self.client.log({"step": step, **values})

    def _open(self) -> Any:
        import wandb

        known = self.folder / "wandb" / "id"  # the same run after it was resumed
        if not known.exists():
            known.parent.mkdir(parents=True, exist_ok=True)
            known.write_text(secrets.token_hex(4), encoding="utf-8")
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bough"),
            name=self.folder.name,
            id=known.read_text(encoding="utf-8"),
            dir=str(self.folder),
            resume="allow",
            config={"recipe": (self.folder / "recipe.yaml").read_text(encoding="utf-8")},
        )
        run.define_metric("*", step_metric="step")
        return run

    def close(self) -> None:
        if self.client is not None:
            self.client.finish()
            self.client = None


TRACKERS: dict[str, type[Tracker]] = {t.name: t for t in (TensorBoard, WandB)}


class Tracked(HandingOn):
    """A display, and trackers beside it."""

    def __init__(self, display: Display, trackers: Sequence[Tracker]):
        super().__init__(display)
        self.trackers = list(trackers)

    def log(self, entry: Mapping[str, Any]) -> None:
        self.display.log(entry)
        self._each(lambda tracker: tracker.log(entry))

    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None:
        self.display.scored(step, scores, best)
        self._each(lambda tracker: tracker.scored(step, scores, best))

    def close(self) -> None:
        self._each(lambda tracker: tracker.close())
        self.display.close()

    def _each(self, do: Callable[[Tracker], None]) -> None:
        for tracker in list(self.trackers):
            try:
                do(tracker)
            except Exception as error:  # whatever it is, it is not the run's trouble
                self.trackers.remove(tracker)
                self.say(f"{tracker.name} failed and is left out from here on: {error}")


def tracked(display: Display, names: Sequence[str], folder: Path) -> Display:
    """The display, with the trackers of these names for a run in this folder."""
    for name in names:
        if name not in TRACKERS:
            known = " or ".join(TRACKERS)
            raise UserError(f"--mirror {name!r}: expected {known}{nearest(name, TRACKERS)}")
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--mirror {name} needs its package: {install_line(name)}")
    chosen = [TRACKERS[name](folder) for name in dict.fromkeys(names)]
    return Tracked(display, chosen) if chosen else display


def log_values(entry: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line of the log, each under a name with its task or place."""
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in log_values(value))
        elif name != "step":
            yield name, float(value)


def score_values(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """All metrics of the dev rows, and both aggregates."""
    for task, task_scores in scores["tasks"].items():
        for metric, value in task_scores.items():
            if metric not in NO_METRICS or metric == "loss":
                yield f"dev/{task}/{metric}", float(value)
    for name in ("raw", "normalised"):
        yield f"dev/{name}", float(scores[name])
