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
from tests import folders, tiny
from tests.exports import model_of, sentences
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
    (donor,) = donors([str(run)], {}, {}, tmp_path)
    assert (donor.name, donor.theirs, donor.labelled) == ("sentiment", "sentiment", True)
    assert Path(str(donor.task.train)).is_file()
    assert encoder_of([donor]) == str(tiny_folder)
    told = [("A fine film.",), ("Two hours.",)]
    expected = answered(load_torch(run), "sentiment", told)
    torch.testing.assert_close(donor.answers(told), expected)


def test_rows_to_judge_by_may_be_given(tmp_path: Path) -> None:
    folder = str(classifier("bert", tmp_path / "mood", numbers=False))
    file, plain = texts(tmp_path / "a.jsonl", True), texts(tmp_path / "plain.jsonl", False)
    lines = file.read_text().splitlines(keepends=True)
    few = tmp_path / "few.jsonl"
    few.write_text("".join(lines[:3]))
    (donor,) = donors([folder], {"mood": str(file)}, {"mood": str(few)}, tmp_path / "rows")
    for made, expected in ((donor.task.train, lines), (donor.task.dev, lines[:3])):
        assert [json.loads(line) for line in Path(str(made)).read_text().splitlines()] == [
            json.loads(line) for line in expected
        ]
    unlabelled = {"mood": str(plain)}
    (donor,) = donors([folder], unlabelled, unlabelled, tmp_path / "rows")
    assert Path(str(donor.task.train)).read_text() == Path(str(donor.task.dev)).read_text()
    with pytest.raises(UserError, match=r"plain.jsonl: has no column 'label', which .*a.jsonl has"):
        donors([folder], {"mood": str(file)}, unlabelled, tmp_path / "rows")
    fresh = tmp_path / "nothing is written before all is right"
    with pytest.raises(UserError, match=r"--held-out mod=\.\.\.: the tasks are mood"):
        donors([folder], {"mood": str(file)}, {"mod": str(few)}, fresh)
    with pytest.raises(UserError, match=r"--texts mod=\.\.\.: the tasks are mood"):
        donors([folder], {"mood": str(file), "mod": str(file)}, {}, fresh)
    second = str(classifier("bert", tmp_path / "other", numbers=False))
    given = {"": str(file)}
    with pytest.raises(UserError, match="has no column 'label'"):
        donors([folder, second], given, {"mood": str(few), "other": str(plain)}, fresh)
    assert not fresh.exists()


def test_numbers_to_judge_by_may_lie_beyond_those_to_learn_from(tmp_path: Path) -> None:
    folder = str(classifier("bert", tmp_path / "like", numbers=True))
    files = {}
    for split, numbers in {"learn": (0.2, 4.8, 3), "judge": (0, 5)}.items():
        files[split] = tmp_path / f"{split}.jsonl"
        lines = [{"words": t, "label": n} for t, n in zip(sentences(3), numbers, strict=False)]
        files[split].write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = ({"like": str(files["learn"])}, {"like": str(files["judge"])})
    (donor,) = donors([folder], *given, tmp_path / "rows")
    assert donor.task.range == (0, 5)


def test_what_has_no_rows_is_given_texts(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "mood", numbers=False)
    with pytest.raises(UserError, match=r"task 'mood' has no rows.*--texts mood=FILE"):
        donors([str(folder)], {}, {}, tmp_path / "rows")
    plain = str(texts(tmp_path / "plain.jsonl", labels=False))
    (donor,) = donors([str(folder)], {"": plain}, {}, tmp_path / "rows")
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
    first, second = donors([str(folder), str(folder)], {"": file}, {}, tmp_path / "rows")
    assert first.labelled
    assert (first.name, second.name) == ("mood", "mood-2")


def test_columns_must_be_texts(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "mood", numbers=False)
    file = tmp_path / "wide.csv"
    file.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(UserError, match="has the columns a, b, c; expected one for a text"):
        donors([str(folder)], {"": str(file)}, {}, tmp_path / "rows")


def test_a_model_of_several_labels_gives_each_text_all_that_hold(tmp_path: Path) -> None:
    task = tiny.task(kind="multilabel", labels=("a", "b", "c"))
    model = model_of("full", {"topics": task})
    folder = model.save(tmp_path / "model")
    file = tmp_path / "texts.jsonl"
    told = sentences(40)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in told))
    (donor,) = donors([str(folder)], {"": str(file)}, {}, tmp_path / "rows")
    shares = donor.answers([(text,) for text in told])
    held = {
        text: [name for name, share in zip("abc", row, strict=True) if share > 0.5]
        for text, row in zip(told, shares.tolist(), strict=True)
    }
    assert {len(names) for names in held.values()} != {1}
    for split in ("train", "dev"):
        for line in Path(str(getattr(donor.task, split))).read_text().splitlines():
            row = json.loads(line)
            assert row["label"] == held[row["text"]]


def test_numbers_without_labels_or_a_range_are_not_cut(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "like", numbers=True, bias=3.0)
    file = str(texts(tmp_path / "plain.jsonl", labels=False))
    (donor,) = donors([str(folder)], {"": file}, {}, tmp_path / "rows")
    assert donor.task.range is None
    said = donor.answers([(text,) for text in sentences(40)])
    assert float(said.min()) > 1
    assert len(said.unique()) > 10
    lines = Path(str(donor.task.train)).read_text().splitlines()
    told = [json.loads(line) for line in lines]
    expected = donor.answers([(row["words"],) for row in told])[:, 0].tolist()
    assert [row["label"] for row in told] == pytest.approx(expected, abs=1e-5)
