"""Answers to the unlabelled test files of Stanford's CS224N default project, in the form that the
course's starter code writes and its leaderboard reads.

    python recipes/cs224n_submission.py RUN -o FOLDER [--data FOLDER]

The tasks are known by their names; their test files are the recipe's `test`, else those of the
course's names, where the recipe's data is or in --data. Header and rows are odd (a tab in the one,
a comma in the others, `Similiary`), and kept as they are because the grader expects them.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bough


@dataclass(frozen=True)
class Sheet:
    """One of the course's files: what it answers, and how it is headed."""

    names: tuple[str, ...]  # what the task may be called
    test: str  # the unlabelled file, as it is handed out
    out: str
    header: str
    classes: int | None  # None: a number
    texts: int

    def task(self, model: bough.Model) -> str | None:
        """The model's task that goes by one of the names; a UserError if it is something else."""
        for known in self.names:
            for name, task in model.tasks.items():
                if known not in name.lower().replace("-", "_").split("_"):
                    continue
                classes = len(task.labels) if task.labels else None
                if (len(task.columns), classes) != (self.texts, self.classes):
                    form = "one text" if self.texts == 1 else "a pair"
                    what = f"{self.classes} classes" if self.classes else "a number"
                    raise bough.UserError(
                        f"task {name!r} is not the course's: {what} for {form} expected"
                    )
                return name
        return None

    def line(self, row: str, answer: bough.Answer) -> str:
        return f"{row.strip().lower()} , {self.cell(answer)} \n"

    def cell(self, answer: bough.Answer) -> str:
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


def submit(source: str | Path, data: str | Path | None, out: str | Path) -> Iterator[str]:
    """Write the course's files into `out`, one sentence about each."""
    target = Path(out)
    if target.exists() and not target.is_dir():
        raise bough.UserError(f"{target} is a file; give a folder for the course's files")
    if data is not None and not Path(data).is_dir():
        raise bough.UserError(f"{data}: no such folder; name the one with the course's test files")
    model = bough.load(source)
    recipe = _recipe(Path(source)) if data is None else None
    root = recipe.root if recipe is not None else Path(str(data))
    jobs = []
    for sheet in SHEETS:
        name = sheet.task(model)
        if name is None:
            yield f"{sheet.out}: not written, no task of this model is called {sheet.names[0]}"
            continue
        given = recipe.tasks[name].test if recipe is not None and name in recipe.tasks else None
        file = root / (given if isinstance(given, str) else sheet.test)
        if not file.is_file():
            yield f"{sheet.out}: not written, there is no {file}"
            continue
        jobs.append((sheet, name, file, _rows(file, model.tasks[name].columns)))
    if not jobs:
        raise bough.UserError(f"{root}: no test file of the course that this model could answer")
    target.mkdir(parents=True, exist_ok=True)
    for sheet, name, file, rows in jobs:
        answers = model.predict([text for _, text in rows], tasks=name)
        lines = [sheet.line(row, a[name]) for (row, _), a in zip(rows, answers, strict=True)]
        (target / sheet.out).write_text("".join([sheet.header, *lines]), encoding="utf-8")
        yield f"{target / sheet.out}: {len(rows):,} rows from {file}"


def _recipe(folder: Path) -> bough.Recipe:
    """The recipe of the run; what lies beside a folder of another name is not the model's."""
    if not (folder / "recipe.yaml").is_file():
        raise bough.UserError(
            f"{folder} is no run with a recipe; name the folder with the course's test files"
        )
    return bough.Recipe.read(folder / "recipe.yaml")


def _rows(file: Path, columns: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Ids and texts as the course's own reader finds them; all of them are checked first."""
    rows: list[tuple[str, Any]] = []
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines, delimiter="\t")
        for column in ("id", *columns):
            if column not in (reader.fieldnames or ()):
                raise bough.UserError(f"{file} has no column {column!r}; it is not the course's")
        for row in reader:
            texts = tuple((row[column] or "").strip() for column in columns)
            if not row["id"] or not all(texts):
                raise bough.UserError(f"{file} line {reader.line_num}: a cell is empty; fix it")
            rows.append((row["id"], texts if len(texts) == 2 else texts[0]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", metavar="RUN", help="A run directory, a model folder or a hub id.")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="Where to write.")
    parser.add_argument("--data", metavar="FOLDER", help="Where the test files are.")
    given = parser.parse_args()
    try:
        for line in submit(given.run, given.data, given.out):
            print(line)
    except bough.UserError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
