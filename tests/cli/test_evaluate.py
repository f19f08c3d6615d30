"""bough eval: any labelled file, any model folder, class by class."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import classification_report, confusion_matrix

from bough.export.onnx_export import write_onnx
from bough.inference.load import load
from bough.runs.run_dir import Run
from tests.command import bough


def as_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert bough("eval", *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def plain(scores: dict[str, Any]) -> dict[str, Any]:
    """As a run's scores.json has them."""
    more = ("classes", "confusion")
    tasks = {
        name: {key: value for key, value in own.items() if key not in more}
        for name, own in scores["tasks"].items()
    }
    return {**scores, "tasks": tasks}


def rows_of(tiny_folder: Path, name: str) -> tuple[Path, list[dict[str, str]]]:
    file = tiny_folder.parent / "rows" / name
    with open(file, newline="", encoding="utf-8") as lines:
        return file, list(csv.DictReader(lines))


def test_a_runs_own_rows(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("eval", run.folder) == 0
    told = capsys.readouterr().out
    for word in ("similarity", "ece", "precision", "true class (down)"):
        assert word in told
    for split in ("dev", "test"):
        found = as_json(capsys, run.folder, "--split", split)
        assert {split: plain(found[split])} == {split: run.scores[split]}
    found = as_json(capsys, run.folder, "--split", "train", "--task", "questions")
    assert found["train"]["tasks"].keys() == {"questions"}
    assert found["train"]["tasks"]["questions"]["rows"] == 64
    assert bough("eval", run.folder, "--split", "deff") == 2
    assert "expected train, dev, test" in capsys.readouterr().err
    assert bough("eval", run.folder.parent) == 2
    assert "not a run directory" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["run", "model", "onnx"])
def test_a_file_is_judged_as_scikit_learn_does(
    kind: str, run: Run, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = {"run": run.folder, "model": run.model, "onnx": Path("onnx")}[kind]
    if kind == "onnx":
        write_onnx(run.folder, folder)
    file, rows = rows_of(tiny_folder, "sentiment-train.csv")
    found = as_json(capsys, folder, file)[str(file)]["tasks"]
    assert found.keys() == {"sentiment"}, "no other task has its columns here"
    model = load(folder)
    answers = [one["sentiment"] for one in model.predict([row["text"] for row in rows])]
    truth = [row["label"] for row in rows]
    said = [answer.label for answer in answers]
    labels = list(model.tasks["sentiment"].labels or ())
    theirs = classification_report(truth, said, labels=labels, output_dict=True, zero_division=0)
    own = found["sentiment"]
    for label in labels:
        for ours, name in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score")):
            assert own["classes"][label][ours] == pytest.approx(theirs[label][name], abs=1e-12)
        assert own["classes"][label]["rows"] == theirs[label]["support"]
    assert own["confusion"] == confusion_matrix(truth, said, labels=labels).tolist()
    assert own["accuracy"] == pytest.approx(np.mean(np.array(truth) == np.array(said)))
    sure = np.array([answer.score for answer in answers])
    bins = np.minimum((sure * 15).astype(int), 14)
    gaps = [abs((sure - (np.array(truth) == np.array(said)))[bins == b].sum()) for b in range(15)]
    assert own["ece"] == pytest.approx(sum(gaps) / len(rows), abs=1e-5)


def test_several_files_and_other_columns(
    run: Run, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mood, rows = rows_of(tiny_folder, "sentiment-dev.csv")
    pairs, _ = rows_of(tiny_folder, "questions-dev.csv")
    found = as_json(capsys, run.folder, mood, pairs)
    assert found.keys() == {str(mood), str(pairs)}
    assert found[str(pairs)]["tasks"].keys() == {"questions"}
    with open("mine.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["review", "mood"])
        writer.writerows([row["text"], row["label"]] for row in rows)
    words = (run.folder, "mine.csv", "--text", "review", "--label", "mood")
    assert as_json(capsys, *words)["mine.csv"] == found[str(mood)]


def test_mistakes_are_one_sentence(
    run: Run, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("odd.csv").write_text("text,label\nFine.,positive\nOdd.,possitive\n")
    Path("bad.csv").write_text("text,label\nFine.,positive\n,positive\n")
    Path("bare.csv").write_text("text\nFine.\n")
    mistakes: list[tuple[list[str | Path], str]] = [
        ([run.model], "a model has no rows of its own; name a labelled file"),
        ([run.folder, "none.csv"], "no such file"),
        ([run.folder, "bare.csv"], "has the text and label columns of no task; expected sentiment"),
        ([run.folder, "odd.csv"], "line 3, column 'label': the label is no class of this task"),
        (
            [run.folder, "bad.csv"],
            "is bad: fix the file, or leave such rows out (--skip, in Python skip=True)",
        ),
        (
            [run.folder, "odd.csv", "--label", "lable"],
            "has no column 'lable'; it has text, label; d",
        ),
        ([run.folder, "odd.csv", "--split", "dev"], "--split is for the run's own rows"),
        ([run.folder, "--skip"], "are for files"),
        ([run.folder, "odd.csv", "--task", "sentimant"], "did you mean 'sentiment'"),
    ]
    for words, said in mistakes:
        assert bough("eval", *words) == 2
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1
    assert bough("eval", run.folder, "odd.csv", "--skip", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["odd.csv"]["tasks"]["sentiment"]["rows"] == 1
    assert "odd.csv: skipped 1 of 2 rows: line 3" in captured.err
