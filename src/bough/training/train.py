"""A run from outside: started, and gone on with."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from bough.distributed import Processes, joined, restarted
from bough.errors import UserError
from bough.files import DiskFullError
from bough.recipe.recipe import Recipe
from bough.runs.console import Display, Silent, for_terminal
from bough.runs.run_dir import Onlooker, Run, Writer
from bough.training.loop import FORM, Failed
from bough.training.teachers.trained_first import with_trained_teachers
from bough.training.trainer import Trainer


def train(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    out: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    display: Display | None = None,
    *,
    progress: bool = False,
) -> Run:
    """Train what a recipe says.

    Args:
        recipe: A YAML file, a mapping of the same keys, or a `Recipe`.
        out: The run's directory; else `runs/RECIPE'S-NAME`.
        overrides: Settings `a.b=c`, as those of `bough train --set`.
        display: What is told of every step; nothing by default.
        progress: Show how it goes, as `bough train` does; in a notebook below the cell.

    Returns:
        The finished run; `bough.load` opens its model.

    Raises:
        UserError: The recipe or its data cannot be used, or `out` has a run already.

    Example:
        >>> run = bough.train("recipe.yaml", out="runs/split", overrides=["plan=split@1"])
        >>> run.plan, run.finished
        ('split@1', True)
    """
    # What a run does not do is not in its recipe.
    resolved = Recipe.read(recipe, overrides).anchored().model_copy(update={"pretraining": None})
    chosen = Path(out).expanduser() if out is not None else new_folder(recipe)
    watched = display or (for_terminal() if progress else Silent())
    return start(Trainer, resolved, chosen, watched, _with_teachers)


def resume(
    folder: str | os.PathLike[str],
    display: Display | None = None,
    *,
    progress: bool = False,
    threads: int | None = None,
) -> Run:
    """Go on with a run that was stopped or killed, as if nothing had happened.

    Args:
        folder: The run's directory.
        display: What is told of every step; nothing by default.
        progress: Show how it goes, as `bough train` does; in a notebook below the cell.
        threads: Of torch, instead of those that the recipe names.

    Example:
        >>> bough.resume("runs/stopped").finished
        True
    """
    watched = display or (for_terminal() if progress else Silent())
    return go_on(Trainer, Run.open(folder), watched, threads)


class Worker(Protocol):
    """What does the work of a run, from where it stands to its end."""

    verb: ClassVar[str]  # the command that starts it and goes on with it

    def __init__(
        self,
        recipe: Recipe,
        writer: Writer,
        display: Display,
        state: dict[str, Any] | None,
        processes: Processes,
    ): ...

    def run(self) -> None: ...


Prepare = Callable[[Recipe, Display, Processes], Recipe]
"""What is done before a run begins: the recipe as it then is."""


def start(
    worker: type[Worker],
    recipe: Recipe,
    chosen: Path,
    display: Display,
    prepare: Prepare = lambda recipe, display, processes: recipe,
) -> Run:
    """A new run in this folder; after a restart of its processes, the one they had begun."""
    with joined() as processes:
        folder = Path(processes.hand_out_bytes(str(chosen).encode()).decode())
        if restarted() and Run(folder).recipe_file.is_file():
            return _go_on(worker, Run(folder), display, processes, None)
        writer = Writer.start(folder) if processes.first else Onlooker(folder)
        with (
            _closing(writer, display, processes, worker.verb) as shown,
            threads_of(recipe.threads),
        ):
            worker(prepare(recipe, shown, processes), writer, shown, None, processes).run()
    return writer.run


def go_on(worker: type[Worker], run: Run, display: Display, threads: int | None) -> Run:
    """The run from its checkpoint to its end."""
    if run.finished and not restarted():
        raise UserError(f"{run.folder}: is finished; there is nothing to resume")
    with joined() as processes:
        return _go_on(worker, run, display, processes, threads)


def _with_teachers(recipe: Recipe, display: Display, processes: Processes) -> Recipe:
    teach = partial(_finish, display=display, processes=processes)
    return with_trained_teachers(recipe, teach, processes, display.say)


def _finish(recipe: Recipe, run: Run, display: Display, processes: Processes) -> None:
    """A run beside the one that was asked for, to its end, whether it has begun or not."""
    begun = processes.agree_on({"begun": run.recipe_file.is_file()})["begun"]
    opened = Writer.resume if begun else Writer.start
    writer = opened(run.folder) if processes.first else Onlooker(run.folder)
    try:
        with threads_of(recipe.threads):
            # No name for the state here: it is a copy of all weights, and would stay for the run.
            Trainer(
                recipe,
                writer,
                display,
                _state_for_all(run, processes) if begun else None,
                processes,
            ).run()
    finally:
        writer.close()


def _go_on(
    worker: type[Worker], run: Run, display: Display, processes: Processes, threads: int | None
) -> Run:
    if run.finished:  # by processes of which one failed at the very end
        return run
    writer = Writer.resume(run.folder) if processes.first else Onlooker(run.folder)
    with _closing(writer, display, processes, worker.verb) as shown:
        recipe = run.recipe()
        verb = "train" if recipe.pretraining is None else "pretrain"
        if worker.verb != verb:
            raise UserError(
                f"{run.folder}: was begun by `bough {verb}`; go on with: "
                f"bough {verb} --resume {run.folder}"
            )
        with threads_of(threads or recipe.threads):
            worker(recipe, writer, shown, _state_for_all(run, processes), processes).run()
    return run


def new_folder(recipe: object, ending: str = "") -> Path:
    """runs/<recipe's name>, numbered where it is taken; after a restart the last one taken."""
    stem = (Path(recipe).stem if isinstance(recipe, str | os.PathLike) else "run") + ending
    number, last = 1, None
    while True:
        folder = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not folder.exists():
            begun = last is not None and restarted() and not Run(last).finished
            return last if begun and last is not None else folder
        number, last = number + 1, folder


def _state(run: Run) -> dict[str, Any] | None:
    """What the run goes on from; nothing before its first checkpoint."""
    if not run.checkpoint.is_file():
        return None
    try:
        _check_sums(run.checkpoint)
        state = torch.load(run.checkpoint, map_location="cpu", weights_only=True)
    except Exception:  # what the reader of pickles stumbles over first, in bytes that are none
        raise UserError(f"{run.checkpoint}: is damaged; train the recipe anew") from None
    if not isinstance(state, dict) or state.get("form") != FORM:
        raise UserError(
            f"{run.checkpoint}: was written by another version of bough; resume the run with that "
            "one, or train the recipe anew"
        )
    return state


def _state_for_all(run: Run, processes: Processes) -> dict[str, Any] | None:
    """The first process reads it: a shared folder may show the others an older file."""
    state = _state(run) if processes.first else None
    if processes.count == 1:
        return state
    file = io.BytesIO()
    if state is not None:
        torch.save(state, file)
    content = processes.hand_out_bytes(file.getvalue())
    if not content:
        return None
    told: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return told


def _check_sums(checkpoint: Path) -> None:
    """Torch writes a checksum with each tensor, in the manner of zip files, and reads none."""
    with zipfile.ZipFile(checkpoint) as file:
        if (damaged := file.testzip()) is not None:
            raise ValueError(damaged)


@contextmanager
def _closing(
    writer: Writer, display: Display | None, processes: Processes, verb: str
) -> Iterator[Display]:
    """Whatever happens, the display is put away and the run directory let go of."""
    shown = display if display is not None and processes.first else Silent()
    try:
        yield shown
    except DiskFullError as error:
        raise Failed(
            f"{error}. Make room, then go on with: bough {verb} --resume {writer.run.folder}"
        ) from None
    finally:
        shown.close()
        writer.close()


@contextmanager
def threads_of(number: int | None) -> Iterator[None]:
    """Torch's threads are the process's: the run has its own number, the caller gets his back."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
