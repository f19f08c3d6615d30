"""Mirrors of a run: what is logged is also sent to TensorBoard or Weights & Biases.

The run directory stays the truth; a mirror that fails is left behind, and the run goes on.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bough.errors import UserError, nearest
from bough.runs.console import NO_METRICS, Display, Moment, Silent


class TensorBoard(Silent):
    """Event files in the run's folder `tensorboard`: see them with `tensorboard --logdir runs`."""

    name = "tensorboard"

    def __init__(self, folder: Path):
        self.folder = folder / "tensorboard"
        self.writer: Any = None

    def log(self, entry: Mapping[str, Any]) -> None:
        self._write(entry["step"], logged(entry))

    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None:
        self._write(step, judged(scores))

    def _write(self, step: int, values: Iterator[tuple[str, float]]) -> None:
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # A resumed run may go back some steps: those are made anew.
            self.writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in values:
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class WandB(Silent):
    """A run of the same name in the project that WANDB_PROJECT names, by default `bough`.

    Where there is no network, WANDB_MODE=offline keeps it in the run's folder `wandb`.
    """

    name = "wandb"

    def __init__(self, folder: Path):
        self.folder = folder
        self.run: Any = None

    def log(self, entry: Mapping[str, Any]) -> None:
        self._send({"step": entry["step"], **dict(logged(entry))})

    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None:
        self._send({"step": step, **dict(judged(scores))})

    def _send(self, values: Mapping[str, float]) -> None:
        if self.run is None:
            self.run = self._open()
        self.run.log(values)

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
        if self.run is not None:
            self.run.finish()
            self.run = None


Mirror = TensorBoard | WandB
MIRRORS: dict[str, type[TensorBoard] | type[WandB]] = {m.name: m for m in (TensorBoard, WandB)}


class Mirrored:
    """A display, and mirrors beside it."""

    def __init__(self, display: Display, mirrors: Sequence[Mirror]):
        self.display = display
        self.mirrors = list(mirrors)

    def say(self, text: str) -> None:
        self.display.say(text)

    def step(self, moment: Moment) -> None:
        self.display.step(moment)

    def log(self, entry: Mapping[str, Any]) -> None:
        self.display.log(entry)
        self._each(lambda mirror: mirror.log(entry))

    def scored(self, step: int, scores: Mapping[str, Any], best: bool) -> None:
        self.display.scored(step, scores, best)
        self._each(lambda mirror: mirror.scored(step, scores, best))

    def close(self) -> None:
        self._each(lambda mirror: mirror.close())
        self.display.close()

    def _each(self, do: Callable[[Mirror], None]) -> None:
        for mirror in list(self.mirrors):
            try:
                do(mirror)
            except Exception as error:  # whatever it is, it is not the run's trouble
                self.mirrors.remove(mirror)
                self.say(f"{mirror.name} failed and is left out from here on: {error}")


def mirrored(display: Display, names: Sequence[str], folder: Path) -> Display:
    """The display, with the mirrors of these names for a run in this folder."""
    for name in names:
        if name not in MIRRORS:
            said = f"--mirror {name!r}: expected {' or '.join(MIRRORS)}"
            raise UserError(said + nearest(name, MIRRORS))
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--mirror {name} needs its package: pip install 'bough[{name}]'")
    chosen = [MIRRORS[name](folder) for name in dict.fromkeys(names)]
    return Mirrored(display, chosen) if chosen else display


def logged(entry: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line of the log, each under a name with its task or place."""
    for name, value in entry.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in logged(value))
        elif name != "step":
            yield name, float(value)


def judged(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """All metrics of the dev rows, and both aggregates."""
    for task, own in scores["tasks"].items():
        for metric, value in own.items():
            if metric not in NO_METRICS or metric == "loss":
                yield f"dev/{task}/{metric}", float(value)
    for name in ("raw", "normalised"):
        yield f"dev/{name}", float(scores[name])
