"""A model judged from Python: on files, on rows in memory, by any runtime."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bough.errors import UserError
from bough.export.onnx_export import write_onnx
from bough.inference.evaluation import evaluate
from bough.inference.load import load
from bough.inference.torch_model import MultiTaskModel
from bough.runs.run_dir import Run

ROWS = [
    {"text": "A fine film, and a warm one.", "label": "positive"},
    {"text": "Two hours I will not get back.", "label": "negative"},
    {"text": "It has a beginning and an end.", "label": "neutral"},
]


def test_rows_in_memory_in_every_form(model: MultiTaskModel, tmp_path: Path) -> None:
    found = evaluate(model, ROWS)
    assert found.scores["tasks"].keys() == {"sentiment"}
    assert found.confusion["sentiment"].sum() == 3
    assert sum(own["rows"] for own in found.classes["sentiment"].values()) == 3
    columns = {name: [row[name] for row in ROWS] for name in ("text", "label")}
    file = tmp_path / "rows.csv"
    lines = ["text,label", *(f'"{row["text"]}",{row["label"]}' for row in ROWS)]
    file.write_text("\n".join(lines) + "\n")
    tuples = [(row["text"], row["label"]) for row in ROWS]
    for rows in (columns, file, str(file), tuples):
        assert evaluate(model, rows, tasks="sentiment").scores == found.scores


def test_every_source_and_runtime_says_the_same(
    run: Run, model: MultiTaskModel, tmp_path: Path
) -> None:
    own = evaluate(run)
    assert own.scores == run.scores["dev"]
    assert evaluate(run.folder).scores == own.scores
    exported = load(write_onnx(run.folder, tmp_path / "onnx"))
    for rows in (ROWS, {"question1": ["Why?"], "question2": ["Why so?"], "label": ["same"]}):
        here, there = evaluate(model, rows), evaluate(exported, rows)
        assert here.scores["tasks"].keys() == there.scores["tasks"].keys()
        for name in here.confusion:
            assert np.array_equal(here.confusion[name], there.confusion[name])
            ours, theirs = (e.scores["tasks"][name]["ece"] for e in (here, there))
            assert ours == pytest.approx(theirs, abs=1e-4)


def test_scores_that_training_had_otherwise_are_said(run: Run, tmp_path: Path) -> None:
    said: list[str] = []
    copy = Run(shutil.copytree(run.folder, tmp_path / "run"))
    evaluate(copy, say=said.append)
    assert not any("training judged" in sentence for sentence in said)
    scores = copy.scores
    scores["dev"]["tasks"]["sentiment"]["accuracy"] += 0.01
    (copy.folder / "scores.json").write_text(json.dumps(scores))
    evaluate(copy, say=said.append)
    (sentence,) = [sentence for sentence in said if "training judged" in sentence]
    assert "with sentiment " in sentence
    assert "similarity" not in sentence


def test_only_tasks_whose_labels_are_there(model: MultiTaskModel) -> None:
    with pytest.raises(UserError, match="the text and label columns of no task"):
        evaluate(model, [{"text": "Fine."}])
    with pytest.raises(UserError, match="the rows to judge it by"):
        evaluate(model)
    with pytest.raises(UserError, match=r"the rows given.*expected a dict, a tuple or a text"):
        evaluate(model, [1, 2])
    told: list[str] = []
    rows = [*ROWS, {"text": "", "label": "neutral"}]
    found = evaluate(model, rows, skip=True, say=told.append)
    assert found.scores["tasks"]["sentiment"]["rows"] == 3
    assert "skipped 1 of 4 rows" in told[0]
