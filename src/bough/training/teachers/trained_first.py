"""Teachers that are recipes: trained before their students, kept, and never trained again.

A teacher's run stands in `runs/teachers` under its recipe's name and a digest of all that it is
made of: the recipe as resolved, its rows and its encoder. Whoever comes while another process
trains it waits; one that was stopped is gone on with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bough.data.dataset import Data
from bough.distributed import Processes
from bough.errors import UserError
from bough.model import pretrained
from bough.recipe.recipe import Recipe
from bough.recipe.teacher import Teacher
from bough.runs.lock import locked
from bough.runs.run_dir import Run

FOLDER = Path("runs") / "teachers"

Train = Callable[[Recipe, Run], None]
"""Bring this recipe's run to its end, from the beginning or from where it stopped."""


def with_trained_teachers(
    recipe: Recipe,
    train: Train,
    processes: Processes,
    say: Callable[[str], None],
    above: tuple[str, ...] = (),
) -> Recipe:
    """The recipe with a finished run in place of each teacher that is a recipe."""
    tasks = {}
    for name, task in recipe.tasks.items():
        teachers = []
        for teacher in task.teacher:
            if teacher.recipe is not None:
                if teacher.recipe in above:
                    chain = " > ".join((*above, teacher.recipe))
                    raise UserError(f"task {name!r}: its teacher teaches itself ({chain})")
                inner = Recipe.read(teacher.recipe).anchored()
                chain_here = (*above, teacher.recipe)
                inner = with_trained_teachers(inner, train, processes, say, chain_here)
                folder = _trained(name, teacher, inner, train, processes, say)
                teacher = teacher.model_copy(update={"recipe": None, "model": str(folder)})
            teachers.append(teacher)
        tasks[name] = task.model_copy(update={"teacher": tuple(teachers)})
    return recipe.model_copy(update={"tasks": tasks})


def _trained(
    name: str,
    teacher: Teacher,
    recipe: Recipe,
    train: Train,
    processes: Processes,
    say: Callable[[str], None],
) -> Path:
    """The folder of the teacher's finished run."""
    assert teacher.recipe is not None
    stem = Path(teacher.recipe).stem
    digest = processes.hand_out_bytes(_digest(recipe).encode()).decode()
    folder = (FOLDER / f"{stem}-{digest[:12]}").absolute()
    with ExitStack() as held:
        if processes.first:
            held.enter_context(locked(FOLDER / f".{folder.name}.lock", wait=True))
        processes.wait()
        run = Run(folder)
        if not processes.agree_on({"finished": run.finished})["finished"]:
            say(f"task {name!r}: its teacher {teacher.recipe} is trained first, into {folder}")
            train(recipe, run)
    return folder


def _digest(recipe: Recipe) -> str:
    """Of all that its run would be made of."""
    facts = [recipe.dump(), Data.gather(recipe).digests(), pretrained.digests(recipe.encoder)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
