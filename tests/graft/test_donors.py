"""Models to be grafted: their tasks, and the rows that they bring or are given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bough.errors import UserError
from bough.graft.donors import donors, encoder_of
from bough.inference.load import load_torch
from bough.training.teachers.kept_answers import answered
from bough.training.train import train
from tests import folders
from tests.exports import sentences
from tests.finished import FEW
from tests.training.teachers.test_sequence_classifier import classifier


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = folders.small(tiny_folder, ("sentiment",), **FEW)
    return train(recipe, tmp_path_factory.mktemp("donors") / "run").folder


def texts(file: Path, labels: bool) -> Path:
    some = sentences(40)
    lines = [{"words": t, **({"label": "bad"} if labels else {})} for t in some]
    if labels:
        lines[::2] = [{**line, "label": "good"} for line in lines[::2]]
        lines[1] |= {"label": "NEUTRAL"}
        lines[3] |= {"label": "NEUTRAL"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_run_brings_its_rows_and_its_encoder(
    run: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    (donor,) = donors([str(run)], {}, tmp_path)
    assert (donor.name, donor.theirs, donor.labelled) == ("sentiment", "sentiment", True)
    assert Path(str(donor.task.train)).is_file()
    assert encoder_of([donor]) == str(tiny_folder)
    told = [("A fine film.",), ("Two hours.",)]
    expected = answered(load_torch(run), "sentiment", told)
    torch.testing.assert_close(donor.answers(told), expected)


def test_what_has_no_rows_is_given_texts(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "mood", numbers=False)
    with pytest.raises(UserError, match=r"task 'mood' has no rows.*--texts mood=FILE"):
        donors([str(folder)], {}, tmp_path / "rows")
    plain = str(texts(tmp_path / "plain.jsonl", labels=False))
    (donor,) = donors([str(folder)], {"": plain}, tmp_path / "rows")
    assert not donor.labelled
    assert donor.task.labels == ("bad", "good", "NEUTRAL")
    rows = [
        json.loads(line)
        for split in ("train", "dev")
        for line in Path(str(getattr(donor.task, split))).read_text().splitlines()
    ]
    assert sorted({row["words"] for row in rows}) == sorted(set(sentences(40)))
    said = donor.answers([(row["words"],) for row in rows]).argmax(1)
    assert [row["label"] for row in rows] == [donor.task.labels[i] for i in said.tolist()]


def test_labels_of_the_file_count(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "mood", numbers=False)
    file = str(texts(tmp_path / "labelled.jsonl", labels=True))
    first, second = donors([str(folder), str(folder)], {"": file}, tmp_path / "rows")
    assert first.labelled
    assert (first.name, second.name) == ("mood", "mood-2")


def test_columns_must_be_texts(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "mood", numbers=False)
    file = tmp_path / "wide.csv"
    file.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(UserError, match="has the columns a, b, c; expected one for a text"):
        donors([str(folder)], {"": str(file)}, tmp_path / "rows")
