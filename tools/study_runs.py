"""A survey's finished runs in a few kilobytes each: to go on elsewhere, and to test it anew.

    python -m tools.study_runs pack SURVEY [--name NAME]
    python -m tools.study_runs unpack NAME DIR

`pack` writes `docs/studies/runs/NAME.json.xz`: of each finished run its recipe, scores, cost and
answers, without weights and without a word or a label of the data. `unpack` makes a survey's
directory of it, with the labels out of the data that BOUGH_DATA names: `bough compare DIR` then
says what it said, and `bough survey DIR` runs what was not done.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bough.comparison.cell_names import FILE
from bough.data.dataset import Data
from bough.errors import UserError
from bough.files import write_atomically
from bough.recipe.recipe import Recipe
from bough.runs.predictions import written_label
from bough.runs.run_dir import Run
from bough.survey.survey_dir import SurveyDir

PLACE = Path(__file__).parent.parent / "docs" / "studies" / "runs"
FILES = ("recipe.yaml", "plan.txt", "environment.json", "cost.json", "scores.json")
PLACES = ("BOUGH_DATA", "BOUGH_READ")  # of the machine at hand: kept by their names


def packed(folder: Path) -> dict[str, Any]:
    """The survey and its finished runs."""
    place = SurveyDir(folder)
    if place.survey is None:
        raise UserError(f"{folder}: there is no {FILE}; expected the directory of a survey")
    runs = [Run(path) for path in sorted((folder / "runs").iterdir())]
    done = {run.folder.name: _packed_run(run) for run in runs if run.finished}
    return {"survey": _nameless((folder / FILE).read_text("utf-8")), "runs": done}


def _packed_run(run: Run) -> dict[str, Any]:
    judged = [entry for entry in run.metrics() if "dev" in entry]
    config = json.loads((run.model / "config.json").read_text("utf-8"))
    config["facts"].pop("examples", None)  # texts
    answers = {}
    for file in sorted((run.folder / "predictions").glob("*.csv")):
        with open(file, encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            if "label" not in (rows.fieldnames or ()):
                continue  # nothing is compared by them
            answers[file.stem] = [
                {k: _short(k, v) for k, v in row.items() if k not in ("id", "label")}
                for row in rows
            ]
    return {
        "files": {name: _nameless((run.folder / name).read_text("utf-8")) for name in FILES},
        "metrics": judged,
        "config": json.loads(_nameless(json.dumps(config))),
        "answers": {name: _columns(rows) for name, rows in answers.items()},
    }


def _short(column: str, value: str) -> str:
    return f"{float(value):.3f}" if column.startswith("p(") else value


def _columns(rows: list[dict[str, str]]) -> dict[str, list[str]]:
    return {column: [row[column] for row in rows] for column in rows[0]} if rows else {}


def _nameless(text: str) -> str:
    """Without the places of this machine."""
    for name in PLACES:
        if os.environ.get(name):
            text = text.replace(os.environ[name], f"${{{name}}}")
    return text


def unpack(content: dict[str, Any], folder: Path) -> None:
    """The survey's directory, as far as a comparison or a further run needs it."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, content["survey"])
    judged: dict[str, dict[str, tuple[list[str], list[Any]]]] = {}  # the rows of equal tasks
    for name, parts in content["runs"].items():
        run = Run(folder / "runs" / name)
        for part in (run.model, run.folder / "predictions"):
            part.mkdir(parents=True)
        for file, text in parts["files"].items():
            write_atomically(run.folder / file, text)
        metrics = "".join(json.dumps(entry) + "\n" for entry in parts["metrics"])
        write_atomically(run.folder / "metrics.jsonl", metrics)
        write_atomically(run.model / "config.json", json.dumps(parts["config"]))
        recipe = run.recipe()
        key = json.dumps({n: t.model_dump(mode="json") for n, t in recipe.tasks.items()})
        if key not in judged:
            judged[key] = dict(_judged(recipe))
        for file, columns in parts["answers"].items():
            ids, labels = judged[key][file]
            table = {"id": ids, "label": labels, **columns}
            with open(run.folder / "predictions" / f"{file}.csv", "w", newline="") as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(table)
                writer.writerows(zip(*table.values(), strict=True))


def _judged(recipe: Recipe) -> Iterator[tuple[str, tuple[list[str], list[Any]]]]:
    """The ids and labels of the rows that a run was judged on, as its predictions have them."""
    data = Data.gather(recipe)
    for name, splits in data.rows.items():
        for split, rows in splits.items():
            if split != "train" and rows.labels is not None:
                task = data.tasks[name]
                labels = [written_label(task, label) for label in rows.labels]
                yield f"{name}-{split}", ([*map(str, rows.ids)], labels)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    packing = verbs.add_parser("pack", help="keep a survey's finished runs")
    packing.add_argument("survey", type=Path)
    packing.add_argument("--name", help="of the file; else the directory's")
    unpacking = verbs.add_parser("unpack", help="make a survey's directory of what was kept")
    unpacking.add_argument("name")
    unpacking.add_argument("folder", type=Path)
    asked = parser.parse_args()
    try:
        if asked.verb == "pack":
            name = asked.name or asked.survey.resolve().name
            kept = packed(asked.survey)
            file = PLACE / f"{name}.json.xz"
            PLACE.mkdir(exist_ok=True)
            write_atomically(file, lzma.compress(json.dumps(kept).encode(), preset=9))
            print(f"{file}: {len(kept['runs'])} runs, {file.stat().st_size:,} bytes")
        else:
            unpack(
                json.loads(lzma.decompress((PLACE / f"{asked.name}.json.xz").read_bytes())),
                asked.folder,
            )
    except UserError as error:
        sys.exit(f"study_runs: {error}")


if __name__ == "__main__":
    main()
