"""Grafting: finished models become one that loses no more than it may, as cheap as it can be.

A student of all of them is trained under one plan after the other, from the cheapest up, and judged
on rows that nothing was learned from; the first that keeps every task is the answer. The rows are
not untouched: a donor's best moment and the student's plan were both chosen by them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bough.data.dataset import Data
from bough.errors import UserError
from bough.files import write_atomically
from bough.formatting import and_then
from bough.graft.donors import Donor, donors, encoder_of
from bough.graft.judgement import Change, Price, Request, changes, price, requests_of
from bough.inference.load import load
from bough.model import pretrained
from bough.recipe.recipe import MINILM, Recipe
from bough.runs.console import Display
from bough.runs.run_dir import Run
from bough.training.train import resume, train

ADAPTERS = "bottleneck:64"
ASKED = "asked.json"  # what a graft is made of, so that it can go on


@dataclass(frozen=True)
class Try:
    """A student under one plan."""

    plan: str
    run: str
    changes: tuple[Change, ...]
    price: Price

    def lost(self, tolerance: float) -> list[Change]:
        """The tasks that lose more than they may."""
        return [change for change in self.changes if not change.fits(tolerance)]


@dataclass(frozen=True)
class Graft:
    """What came of it: all that was tried, the last or the best being the answer."""

    before: Price
    tries: tuple[Try, ...]
    chosen: Try
    tolerance: float
    apart: Price | None = None  # of the student and of the models of tasks that do not fit
    budget: float | None = None  # minutes of training, all plans together

    @property
    def fits(self) -> bool:
        return not self.chosen.lost(self.tolerance)

    def sentence(self) -> str:
        """All of it in one."""
        told = "; ".join(map(str, self.chosen.changes))
        plan = self.chosen.plan
        if not self.fits:
            lost = self.chosen.lost(self.tolerance)
            names = and_then([change.task for change in lost])
            verb = "does" if len(lost) == 1 else "do"
            short = "" if self.budget is None else f" in {self.budget:g} minutes for all plans"
            return (
                f"{names} {verb} not fit{short}: under {plan}, {told}; left apart: {self.apart}, "
                f"beside {self.before} before"
            )
        unsure = [c.task for c in self.chosen.changes if not c.certain(self.tolerance)]
        more = f" (too few rows to exclude a loss of {2 * self.tolerance:g} in "
        doubt = f"{more}{and_then(unsure)})" if unsure else ""
        return f"{self.before} -> {self.chosen.price} ({plan}); {told}{doubt}"


def graft(
    models: Sequence[str],
    out: str | Path,
    *,
    texts: Mapping[str, str] | None = None,
    held_out: Mapping[str, str] | None = None,
    tolerance: float = 0.01,
    budget: float | None = None,
    encoder: str | None = None,
    overrides: Sequence[str] = (),
    display: Display | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Graft:
    """Make one model of several; its runs, recipe and rows are written into `out`. What was stopped
    goes on where it stood when the same is asked again.

    Args:
        models: Runs, model folders, or folders of sequence classifiers of transformers.
        out: The folder for all of it.
        texts: Files of texts by task, or under "" for every task without rows of its own.
        held_out: Files of texts to judge by, by task, instead of a part of its `texts`.
        tolerance: What a task may lose of its score.
        budget: Minutes of training for all plans together.
        encoder: The trunk to start from; else that of the first run, or minilm.
        overrides: Settings `a.b=c` of the recipe.
    """
    folder = Path(out)
    told = json.dumps([models, texts or {}, held_out or {}, encoder, overrides], default=str)
    _refuse_others(folder, told)
    found = donors(models, texts or {}, held_out or {}, folder / "rows")
    if len({Path(donor.source).resolve() for donor in found}) < 2:
        raise UserError(f"{models[0]}: is one model; a graft makes one of several")
    trunk = encoder or encoder_of(found) or MINILM
    recipe = Recipe.read(_recipe(found, trunk), overrides).anchored()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "recipe.yaml", recipe.dump())
    write_atomically(folder / ASKED, told)
    asked = _asked(recipe)
    # Two tasks of one model were opened with it, and cost it once.
    opened = {donor.source: donor.model for donor in found}
    before = price(list(opened.values()), asked)
    say(f"{before}; trunk of the student: {trunk}")
    layers = pretrained.load(trunk).shape.layers
    tries: list[Try] = []
    began = time.monotonic()
    for number, plan in enumerate(_plans(layers)):
        plan = _grouped(plan, found, tries, tolerance)
        student = recipe.model_copy(update={"plan": plan})
        if budget is not None:
            left = budget - (time.monotonic() - began) / 60
            if left <= 0:
                break
            student = _within(student, left / (len(_plans(layers)) - number))
        run = _trained(student, Run(folder / f"try-{number + 1}"), display)
        tries.append(_judged(plan, run, found, asked))
        say(f"{plan}: {'; '.join(map(str, tries[-1].changes))}")
        if not tries[-1].lost(tolerance):
            break
    return _ended(folder, found, tries, before, tolerance, asked, budget)


def _refuse_others(folder: Path, told: str) -> None:
    """Refuse a folder that has anything but a graft of the same that was stopped."""
    file = folder / ASKED
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not file.is_file():
        raise UserError(f"{folder}: other files are in it; choose another place for the graft")
    if (folder / "graft.json").is_file():
        raise UserError(f"{folder}: has a finished graft; choose another place")
    if file.read_text(encoding="utf-8") != told:
        raise UserError(f"{folder}: has a graft of other models or settings; choose another place")


def _trained(student: Recipe, run: Run, display: Display | None) -> Run:
    """To its end, from where it stands."""
    if run.finished:
        return run
    if run.recipe_file.is_file():
        return resume(run.folder, display)
    return train(student, run.folder, display=display)


def _recipe(found: Sequence[Donor], encoder: str) -> dict[str, Any]:
    """The student's: without labels but the teachers' own, there is nothing to anneal to."""
    tasks = {}
    for donor in found:
        settings = donor.task.model_dump(exclude_defaults=True, exclude={"text"})
        teacher = donor.teacher.model_copy(update={"model": str(Path(donor.source).absolute())})
        settings["teacher"] = [teacher.model_dump(exclude_none=True)]
        tasks[donor.name] = {"kind": donor.task.kind, "text": donor.task.text, **settings}
    anneal = all(donor.labelled for donor in found)
    # As `bough init` has it: no small task is gone through again for as long as a large one lasts.
    training = {
        "sampling": "sqrt",
        "select": "last",
        "distil": {"weight": 1.0, "anneal": anneal},
    }
    return {"encoder": encoder, "tasks": tasks, "training": training}


def _asked(recipe: Recipe) -> list[Request]:
    data = Data.gather(recipe, ["dev"])
    return requests_of([data.rows[name]["dev"].texts for name in recipe.tasks])


def _within(recipe: Recipe, minutes: float) -> Recipe:
    length = {"minutes": minutes, "epochs": None, "steps": None}
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=length)})


def _plans(layers: int) -> list[str]:
    """From the cheapest up; where to split comes lower and lower."""
    splits = sorted({layers - 1, round(layers * 2 / 3), layers // 2} - {0}, reverse=True)
    return ["full", ADAPTERS, *(f"split@{split}" for split in splits)]


def _grouped(plan: str, found: Sequence[Donor], tries: Sequence[Try], tolerance: float) -> str:
    """A split in which those stay together that have agreed so far."""
    if not plan.startswith("split") or not tries:
        return plan
    lost = {change.task for change in tries[-1].lost(tolerance)}
    together = [donor.name for donor in found if donor.name not in lost]
    return f"{plan}/{'+'.join(together)}" if 1 < len(together) < len(found) else plan


def _judged(plan: str, run: Run, found: Sequence[Donor], asked: list[Request]) -> Try:
    cost = price([load(run)], asked)
    return Try(plan, str(run.folder), tuple(changes(found, run)), cost)


def _ended(
    folder: Path,
    found: Sequence[Donor],
    tries: Sequence[Try],
    before: Price,
    tolerance: float,
    asked: list[Request],
    budget: float | None,
) -> Graft:
    if not tries:
        raise UserError("the budget was over before a student was trained; give it more minutes")
    chosen = min(tries, key=lambda tried: (len(tried.lost(tolerance)), tried.price.bytes))
    lost = {change.task for change in chosen.lost(tolerance)}
    apart = None
    if lost:
        left = {donor.source: donor.model for donor in found if donor.name in lost}
        apart = price([load(chosen.run), *left.values()], asked)
    done = Graft(before, tuple(tries), chosen, tolerance, apart, budget)
    content = {"sentence": done.sentence(), "fits": done.fits, **asdict(done)}
    write_atomically(folder / "graft.json", json.dumps(content, indent=1) + "\n")
    return done
