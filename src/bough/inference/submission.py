"""Submission: answers to the unlabelled test files of Stanford's CS224N default project, in the
form that the course's starter code writes and its leaderboard reads.

Header and rows are odd (a tab in the one, a comma in the others, `Similiary`), and kept as they are
because the grader expects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bough.data import rows
from bough.errors import UserError
from bough.files import replacing
from bough.inference.base import Answer, Model, text_of
from bough.inference.inputs import Row
from bough.inference.predict import answers
from bough.inference.torch_model import find, load
from bough.paths import place
from bough.recipe.recipe import Recipe
from bough.recipe.sources import Source
from bough.recipe.tasks import Task
from bough.runs.console import progress


@dataclass(frozen=True)
class Sheet:
    """One of the course's files: what it answers, and how it is headed."""

    names: tuple[str, ...]  # what the task may be called
    test: str  # the unlabelled file, as it is handed out
    out: str
    header: str
    classes: int | None  # None: a number
    texts: int

    def fits(self, task: Task) -> bool:
        classes = len(task.labels) if task.labels else None
        return len(task.columns) == self.texts and classes == self.classes

    def line(self, row: str, answer: Answer) -> str:
        return f"{row.strip().lower()} , {self.said(answer)} \n"

    def said(self, answer: Answer) -> str:
        if answer.value is not None:
            return f"{answer.value:.6f}"
        label, names = answer.label or "", list(answer.probabilities or ())
        number = int(label) if label.isdecimal() else names.index(label)
        # The starter code rounds a sigmoid, which makes 0.0 and 1.0 of the paraphrases.
        return f"{number:.1f}" if self.classes == 2 else str(number)


SHEETS = (
    Sheet(
        ("sst", "sentiment"), "ids-sst-test-student.csv", "sst-test-output.csv",
        "id \t Predicted_Sentiment \n", 5, 1,
    ),
    Sheet(
        ("para", "paraphrase", "quora", "qqp"), "quora-test-student.csv", "para-test-output.csv",
        "id \t Predicted_Is_Paraphrase \n", 2, 2,
    ),
    Sheet(
        ("sts", "similarity"), "sts-test-student.csv", "sts-test-output.csv",
        "id \t Predicted_Similiary \n", None, 2,
    ),
)  # fmt: skip


def submit(source: str | Path, folder: str | None, out: str | Path | None) -> Iterator[str]:
    """Write the course's files into `out`, one sentence about each.

    The test files are those of the run's recipe, else those of the course's names, in `folder` or
    where the recipe's data is.
    """
    if out is None:
        raise UserError("--format cs224n writes a file per task; give a folder for them with -o")
    target = Path(out)
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; give a folder for the course's files")
    if folder is not None and not Path(folder).is_dir():
        raise UserError(f"{folder}: no such folder; name the one with the course's test files")
    model = load(source)
    recipe = None
    if folder is not None:
        root = Path(folder)
    else:
        recipe = _recipe(source)
        root = recipe.root
    jobs = []
    for sheet in SHEETS:
        name = _task(model, sheet)
        if name is None:
            yield f"{sheet.out}: not written, no task of this model is called {sheet.names[0]}"
            continue
        given = recipe.tasks[name].test if recipe is not None and name in recipe.tasks else None
        test: Source = sheet.test if given is None else given
        if isinstance(test, str) and not place(test, root).is_file():
            yield f"{sheet.out}: not written, there is no {place(test, root)}"
            continue
        found = rows.read(
            name, model.tasks[name], test, root=root, policy="error", labels="ignored"
        )
        jobs.append((sheet, name, found))
    if not jobs:
        raise UserError(f"{root}: no test file of the course that this model could answer")
    target.mkdir(parents=True, exist_ok=True)
    for sheet, name, found in jobs:
        asked: list[Row] = [
            (row, {name: text_of(texts)}) for row, texts in zip(found.ids, found.texts, strict=True)
        ]
        with replacing(target / sheet.out) as file:
            file.write(sheet.header)
            for row, answered in progress(answers(model, asked), len(asked), sheet.out):
                file.write(sheet.line(row, answered[name]))
        yield f"{target / sheet.out}: {len(asked):,} rows from {found.source}"


def _recipe(source: str | Path) -> Recipe:
    """The recipe of the run; what lies beside a folder of another name is not the model's."""
    folder = find(source)
    file = folder.parent / "recipe.yaml"
    if folder.name != "model" or not file.is_file():
        raise UserError(
            f"{source} is no run with a recipe; name the folder with the course's test files"
        )
    return Recipe.read(file)


def _task(model: Model, sheet: Sheet) -> str | None:
    """The task that goes by one of the sheet's names; a Mistake if it is something else."""
    for known in sheet.names:
        for name, task in model.tasks.items():
            if known in name.lower().replace("-", "_").split("_"):
                if not sheet.fits(task):
                    form = "one text" if sheet.texts == 1 else "a pair"
                    what = f"{sheet.classes} classes" if sheet.classes else "a number"
                    raise UserError(
                        f"task {name!r} is not the course's: {what} for {form} expected"
                    )
                return name
    return None
