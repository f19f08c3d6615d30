"""A run from outside: started, gone on with, and judged once more."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bough.data.dataset import Data
from bough.errors import UserError
from bough.files import DiskFullError
from bough.inference.load import load_torch
from bough.plan.encoder_pooling import BEFORE_AUTO
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import SPLITS
from bough.runs.console import Display, Silent, progress
from bough.runs.run_dir import Run, Writer
from bough.scoring.evaluate import predict, score
from bough.training.trainer import FORM, Failed, Trainer, changed_rows


def train(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    out: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    display: Display | None = None,
) -> Run:
    """Train what a recipe says.

    Args:
        recipe: A YAML file, a mapping of the same keys, or a `Recipe`.
        out: The run's directory; else `runs/RECIPE'S-NAME`.
        overrides: Settings `a.b=c`, as those of `bough train --set`.
        display: What is told of every step; nothing by default.

    Returns:
        The finished run; `bough.load` opens its model.

    Raises:
        UserError: The recipe or its data cannot be used, or `out` has a run already.

    Example:
        >>> run = bough.train("recipe.yaml", out="runs/split", overrides=["plan=split@1"])
        >>> run.plan, run.finished
        ('split@1', True)
    """
    resolved = Recipe.read(recipe, overrides).anchored()
    writer = Writer.start(Path(out).expanduser() if out is not None else new_folder(recipe))
    with _closing(writer, display or Silent()) as shown, _threads(resolved.threads):
        Trainer(resolved, writer, shown, None).run()
    return writer.run


def resume(folder: str | os.PathLike[str], display: Display | None = None) -> Run:
    """Go on with a run that was stopped or killed, as if nothing had happened.

    Args:
        folder: The run's directory.
        display: What is told of every step; nothing by default.

    Example:
        >>> bough.resume("runs/stopped").finished
        True
    """
    run = Run.open(folder)
    if run.finished:
        raise UserError(f"{run.folder}: is finished; there is nothing to resume")
    writer = Writer.resume(run.folder)
    with _closing(writer, display or Silent()) as shown:
        recipe = _as_begun(Recipe.read(run.recipe_file))
        with _threads(recipe.threads):
            Trainer(recipe, writer, shown, _state(run)).run()
    return run


def judge(
    folder: str | os.PathLike[str], split: str, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Scores of a run's best model on one of its recipe's splits, with intervals.

    Rows that are not those of the run are judged on, too; `say` is told.
    """
    run = Run.open(folder)
    if split not in SPLITS:
        raise UserError(f"--split {split!r}: expected {', '.join(SPLITS)}")
    data = Data.gather(Recipe.read(run.recipe_file), [split])
    for name, _, source in changed_rows(run, data):
        say(
            f"the {split} rows of task {name!r} ({source}) are not those that the run was judged "
            "on: its scores are of other rows than these"
        )
    model = load_torch(run)
    every = data.examples(split, model.tokenizer, model.longest)
    examples = {name: source for name, source in every.items() if source.targets is not None}
    if not examples:
        raise UserError(f"{run.folder}: the {split} rows have no labels to judge by")
    predicted = predict(
        model.network, examples, lambda passes: progress(passes, len(passes), "judging")
    )
    return score(model.tasks, examples, predicted, intervals=True)


def new_folder(recipe: object) -> Path:
    """runs/<recipe's name>, numbered where it is taken."""
    stem = Path(recipe).stem if isinstance(recipe, str | os.PathLike) else "run"
    number = 1
    while True:
        folder = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not folder.exists():
            return folder
        number += 1


def _as_begun(recipe: Recipe) -> Recipe:
    """A run's recipe; what it does not say was not there to be said, and is as it was then."""
    update: dict[str, Any] = {"tasks": BEFORE_AUTO.resolve(recipe.tasks)}
    if "heads" not in recipe.training.model_fields_set:
        update["training"] = recipe.training.model_copy(update={"heads": "fresh"})
    return recipe.model_copy(update=update)


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


def _check_sums(checkpoint: Path) -> None:
    """Torch writes a checksum with each tensor, in the manner of zip files, and reads none."""
    with zipfile.ZipFile(checkpoint) as file:
        if (damaged := file.testzip()) is not None:
            raise ValueError(damaged)


@contextmanager
def _closing(writer: Writer, display: Display) -> Iterator[Display]:
    """Whatever happens, the display is put away and the run directory let go of."""
    try:
        yield display
    except DiskFullError as error:
        raise Failed(
            f"{error}. Make room, then go on with: bough train --resume {writer.run.folder}"
        ) from None
    finally:
        display.close()
        writer.close()


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Torch's threads are the process's: the run has its own number, the caller gets his back."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
