"""The course's submission files: as its starter code writes them, from a run or a folder."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bough.errors import UserError
from bough.inference.torch_model import MultiTaskModel
from tests import tiny

SCRIPT = Path(__file__).parent.parent / "recipes" / "cs224n_submission.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cs224n_submission", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for its module
    spec.loader.exec_module(module)
    return module


submit, SHEETS = script().submit, script().SHEETS


def course_run(folder: Path, data: Path, **changes: Any) -> Path:
    """A run with the course's three tasks, as far as answering needs one."""
    tasks: dict[str, dict[str, Any]] = {
        "sst": {"text": "sentence", "label": "sentiment", "labels": list("01234")},
        "quora": {"text": ("sentence1", "sentence2"), "label": "is_duplicate",
                  "labels": ["0", "1"]},
        "sts": {"text": ("sentence1", "sentence2"), "label": "similarity", "kind": "regress",
                "labels": None, "range": (0, 5)},
    }  # fmt: skip
    tasks |= changes
    made = {name: tiny.task(**settings) for name, settings in tasks.items()}
    source = tiny.encoder(layers=2)
    model = MultiTaskModel(tiny.network("full", made, source, stir=0.3), source.tokenizer, 40)
    model.save(folder / "model")
    told = {n: t.model_dump(mode="json", exclude_none=True) for n, t in made.items()}
    (folder / "recipe.yaml").write_text(
        json.dumps({"encoder": "tiny", "data": str(data), "tasks": told}), encoding="utf-8"
    )
    return folder


def course_data(folder: Path) -> Path:
    folder.mkdir()
    (folder / "ids-sst-test-student.csv").write_text(
        "\tid\tsentence\n0\tB7 \t the old tree\n1\td17\t one root\n", encoding="utf-8"
    )
    for name in ("quora", "sts"):
        (folder / f"{name}-test-student.csv").write_text(
            "\tid\tsentence1\tsentence2\n5\tx1\tone\ttwo\n3\tx0\tthe tree\ta leaf\n9\tx2\tin\ton\n",
            encoding="utf-8",
        )
    return folder


def test_course_files_have_the_courses_form(tmp_path: Path) -> None:
    run = course_run(tmp_path / "run", course_data(tmp_path / "data"))
    said = list(submit(run, None, tmp_path / "out"))
    assert [line.split(": ")[1].split(" from")[0] for line in said] == ["2 rows"] + ["3 rows"] * 2
    found = {s.out: (tmp_path / "out" / s.out).read_text(encoding="utf-8") for s in SHEETS}
    header, one, two, end = found["sst-test-output.csv"].split("\n")
    assert header == "id \t Predicted_Sentiment "
    assert (one.split(" , ")[0], two.split(" , ")[0], end) == ("b7", "d17", "")
    assert one.split(" , ")[1] in [f"{n} " for n in range(5)]
    header, *lines, end = found["para-test-output.csv"].split("\n")
    assert header == "id \t Predicted_Is_Paraphrase "
    assert [line.split(" , ")[0] for line in lines] == ["x1", "x0", "x2"]
    assert {line.split(" , ")[1] for line in lines} <= {"0.0 ", "1.0 "}
    header, *lines, end = found["sts-test-output.csv"].split("\n")
    assert header == "id \t Predicted_Similiary "
    assert all(line.endswith(" ") and 0 <= float(line.split(" , ")[1]) <= 5 for line in lines)


def test_course_labels_by_name_become_numbers(tmp_path: Path) -> None:
    named = {"text": ("sentence1", "sentence2"), "labels": ["different", "same"]}
    run = course_run(tmp_path / "run", course_data(tmp_path / "data"), quora=named)
    list(submit(run, None, tmp_path / "out"))
    lines = (tmp_path / "out" / "para-test-output.csv").read_text(encoding="utf-8").splitlines()
    assert {line.split(" , ")[1] for line in lines[1:]} <= {"0.0 ", "1.0 "}


def test_a_missing_test_file_is_said(tmp_path: Path) -> None:
    data = course_data(tmp_path / "data")
    (data / "quora-test-student.csv").unlink()
    run = course_run(tmp_path / "run", data)
    command = [sys.executable, str(SCRIPT), str(run), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "para-test-output.csv: not written, there is no" in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "sst-test-output.csv", "sts-test-output.csv",
    }  # fmt: skip


def test_a_recipe_beside_a_model_is_not_the_models(tmp_path: Path) -> None:
    data = course_data(tmp_path / "data")
    run = course_run(tmp_path / "run", data)
    project = tmp_path / "project"
    (run / "model").rename(tmp_path / "saved")
    project.mkdir()
    (tmp_path / "saved").rename(project / "saved")
    (project / "recipe.yaml").write_text("tasks: ${NOT_SET}", encoding="utf-8")
    with pytest.raises(UserError, match="is no run with a recipe"):
        list(submit(project / "saved", None, tmp_path / "out"))
    assert len(list(submit(project / "saved", str(data), tmp_path / "out"))) == 3


def test_course_mistakes(tmp_path: Path) -> None:
    data = course_data(tmp_path / "data")
    run = course_run(tmp_path / "run", data)
    done = subprocess.run([sys.executable, str(SCRIPT), str(run)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "-o" in done.stderr
    command = [sys.executable, str(SCRIPT), str(tmp_path), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no model there" in done.stderr
    with pytest.raises(UserError, match="no such folder"):
        list(submit(run, str(tmp_path / "nowhere"), tmp_path / "out"))
    with pytest.raises(UserError, match="is no run with a recipe"):
        list(submit(run / "model", None, tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no test file of the course"):
        list(submit(run, str(tmp_path / "empty"), tmp_path / "out"))
    odd = course_run(tmp_path / "odd", data, sst={"text": "sentence", "labels": ["0", "1"]})
    with pytest.raises(UserError, match="task 'sst' is not the course's: 5 classes for one text"):
        list(submit(odd, None, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\tid\ttext\n0\ta\tone root\n", "has no column 'sentence'; it is not the course's"),
        ("\tid\tsentence\n0\ta\tone root\n1\tb\t\n", "line 3: a cell is empty"),
        ("\tid\tsentence\n0\ta\tone root\n1\n", "line 3: a cell is empty"),
    ],
)
def test_bad_test_files(content: str, said: str, tmp_path: Path) -> None:
    data = course_data(tmp_path / "data")
    (data / "ids-sst-test-student.csv").write_text(content, encoding="utf-8")
    run = course_run(tmp_path / "run", data)
    with pytest.raises(UserError, match=said):
        list(submit(run, None, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


_DATA = Path(os.environ.get("BOUGH_DATA", ""))


@pytest.mark.real
@pytest.mark.skipif(
    not (os.environ.get("BOUGH_DATA") and _DATA.is_dir()),
    reason="BOUGH_DATA names no folder with the CS224N files",
)
def test_course_files_for_the_real_test_sets(tmp_path: Path) -> None:
    run = course_run(tmp_path / "run", _DATA)
    list(submit(run, None, tmp_path / "out"))
    for sheet, size in zip(SHEETS, (2210, None, 1725), strict=True):
        if not (_DATA / sheet.test).is_file():
            continue
        found = (tmp_path / "out" / sheet.out).read_text(encoding="utf-8").split("\n")
        assert found[0] + "\n" == sheet.header
        assert found[-1] == ""
        # The ids as the course's own reader finds them.
        with open(_DATA / sheet.test, encoding="utf-8", newline="") as file:
            truth = [row["id"].lower().strip() for row in csv.DictReader(file, delimiter="\t")]
        ids = [line.split(" , ")[0] for line in found[1:-1]]
        assert ids == truth
        assert size is None or len(ids) == size
