"""Rows: checked cell by cell, each bad one known by file, line, column and value."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bough.data import checked_rows
from bough.data.checked_rows import Policy, Rows
from bough.errors import UserError
from bough.recipe.tasks import Task
from tests.data.reading import BARE, CLASSIFY, REGRESS, Write, mistake, read


def load(train: str, dev: str, policy: Policy = "error", **settings: Any) -> Any:
    task = Task(**(BARE | settings), train=train, dev=dev)
    return checked_rows.load("t", task, root=Path("/nowhere"), policy=policy)


def test_ids(write: Write) -> None:
    path = write("a.csv", "id,sentence,label\nx,fine,1\n,bad,0\n")
    assert read(CLASSIFY, path).ids == ["x", "3"]
    task = Task(kind="classify", text="id", label="label", labels=[0, 1])
    assert read(task, write("b.csv", "id,label\nx,1\n")).ids == ["2"]


@pytest.mark.parametrize(
    "source",
    [
        [{"sentence": "fine", "label": 1}, {"sentence": "bad", "label": "0"}],
        [("fine", 1), ["bad", 0.0]],
        {"sentence": ["fine", "bad"], "label": [1, 0]},
    ],
)
def test_rows_in_memory(source: Any) -> None:
    task, splits = checked_rows.load(
        "t", Task(**BARE, train=source, dev=source), root=Path(), policy="error"
    )
    assert task.labels == ("0", "1")
    assert splits["dev"].texts == [("fine",), ("bad",)]
    assert splits["dev"].labels == [1, 0]
    assert splits["train"].source == "tasks.t.train"


def test_missing_column(write: Write) -> None:
    path = write("a.csv", "id,sentense,label\n1,x,0\n")
    said = mistake(CLASSIFY, path)
    assert said == (
        f"task 't': {path} has no column 'sentence'; it has id, sentense, label; "
        "did you mean 'sentense'?"
    )


def test_missing_label_column(write: Write) -> None:
    path = write("a.csv", "id,sentence\n1,x\n")
    assert read(CLASSIFY, path).labels is None
    assert "has no column 'label'" in mistake(CLASSIFY, path, labels="needed")


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("", "the label is empty; expected one of 0, 1 (found '')"),
        ("nan", "the label is empty"),
        ("2", "the label is no class of this task; expected one of 0, 1 (found '2')"),
        ("yes", "the label is no class of this task"),
    ],
)
def test_bad_classes(write: Write, cell: str, why: str) -> None:
    path = write("a.csv", f"sentence,label\nfine,1\nbad,{cell}\n")
    said = mistake(CLASSIFY, path)
    assert said.startswith(f"task 't': {path} line 3, column 'label': {why}")
    found = read(CLASSIFY, path, "skip")
    assert len(found) == 1
    assert found.report().startswith(f"{path}: skipped 1 of 2 rows: line 3, column 'label': ")


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("", "the label is empty; expected a number from 0 to 5"),
        ("NaN", "the label is empty"),
        ("inf", "the label is no number"),
        ("two", "the label is no number; expected a number from 0 to 5 (found 'two')"),
        ("5.01", "the label is outside the range; expected a number from 0 to 5 (found '5.01')"),
        ("-1", "the label is outside the range"),
    ],
)
def test_bad_values(write: Write, cell: str, why: str) -> None:
    path = write("a.tsv", f"a\tb\tlabel\nx\ty\t5.0\nx\ty\t{cell}\n")
    assert f"line 3, column 'label': {why}" in mistake(REGRESS, path)


def test_bad_values_of_json(write: Write) -> None:
    bad = ["null", "NaN", "true", "[1]", "1e999", "6"]
    lines = "".join(f'{{"a": "x", "b": "y", "label": {value}}}\n' for value in ["2.5", *bad])
    found = read(REGRESS, write("a.jsonl", lines), "skip")
    assert found.labels == [2.5]
    assert [row.line for row in found.skipped] == [2, 3, 4, 5, 6, 7]


def test_empty_text(write: Write) -> None:
    path = write("a.csv", "a,b,label\nx, ,1\n,y,2\nx,y,3\n")
    said = mistake(REGRESS, path)
    assert "line 2, column 'b': the text is empty; expected at least one character" in said
    assert "2 of 3 rows are bad" in said


def test_values_are_shortened(write: Write) -> None:
    path = write("a.csv", f"sentence,label\nfine,1\nbad,{'long' * 100}\n")
    found = read(CLASSIFY, path, "skip")
    assert len(found.skipped[0].value) == 60


def test_no_row_can_be_used(write: Write) -> None:
    path = write("a.csv", "sentence,label\nx,7\ny,8\n")
    assert "none of the 2 rows can be used" in mistake(CLASSIFY, path, "skip")


def test_classes_are_found_in_the_train_rows(write: Write) -> None:
    train = write("train.csv", "sentence,label\na,10.0\nb,9\nc,9.0\n")
    dev = write("dev.csv", "sentence,label\na,9\nb,10\n")
    task, splits = load(train, dev)
    assert task.labels == ("9", "10")
    assert (splits["train"].labels, splits["dev"].labels) == ([1, 0, 0], [0, 1])


def test_unknown_class_in_dev(write: Write) -> None:
    train = write("train.csv", "sentence,label\na,good\nb,bad\n")
    dev = write("dev.csv", "sentence,label\na,good\nb,goood\n")
    with pytest.raises(UserError, match=r"dev\.csv line 3, column 'label'.*did you mean 'good'\?"):
        load(train, dev)
    _, splits = load(train, dev, "skip")
    assert len(splits["dev"]) == 1


def test_given_labels_keep_their_order(write: Write) -> None:
    train = write("train.csv", "sentence,label\na,good\nb,bad\n")
    task, splits = load(train, train, labels=["good", "bad", "ugly"])
    assert (task.labels, splits["train"].labels) == (("good", "bad", "ugly"), [0, 1])


def test_classes_that_the_file_calls_otherwise(write: Write) -> None:
    rows = "".join(f"x{n},{label}\n" for n in range(20) for label in ("1", "good", "bad"))
    train = write("train.csv", f"sentence,label\n{rows}")
    with pytest.raises(
        UserError,
        match=r"not in tasks.t.labels of the recipe, but in the file: "
        r"'good', 'bad'; 20 of the 60 rows can be used",
    ):
        load(train, train, labels=["1", "2"])  # fmt: skip
    with pytest.raises(UserError, match=r"'1', 'good', 'bad'; none of the 60 rows can be used"):
        load(train, train, labels=["2", "3"])
    other = write("other.csv", "sentence,label\na,1\nb,2\n")
    with pytest.raises(UserError, match="not in the train rows, but in the file: 'good', 'bad'"):
        load(other, train)


@pytest.mark.parametrize(
    ("labels", "settings", "said"),
    [
        (["1", "1.0"], {}, "only the class '1'; a classify task needs two or more"),
        (["", ""], {}, "no label at all"),
        ([str(n / 8) for n in range(40)], {}, "set tasks.t.kind to regress"),
        ([f"word {n}" for n in range(60)], {}, "60 different labels in 60 rows"),
        (["2.5", "2.5"], {"kind": "regress"}, "all labels are 2.5; there is nothing to learn"),
        (["a", "b"], {"kind": "regress"}, "no label is a number"),
        (["a", "b", "c"], {"loss": "bce"}, "two classes and here are 3"),
    ],
)
def test_labels_that_make_no_task(
    write: Write, labels: list[str], settings: dict[str, Any], said: str
) -> None:
    train = write("train.csv", "sentence,label\n" + "".join(f"x,{label}\n" for label in labels))
    with pytest.raises(UserError, match=said):
        load(train, train, **settings)


def test_splits(write: Write) -> None:
    train = write("train.csv", "sentence,label\na,1\nb,0\n")
    test = write("test.csv", "sentence\nc\n")
    task = Task(**BARE, train=train, dev=train, test=test)
    _, splits = checked_rows.load("t", task, root=Path(), policy="error")
    assert list(splits) == ["train", "dev", "test"]
    assert splits["test"].labels is None
    found, only = checked_rows.load("t", task, root=Path(), policy="error", splits=["test"])
    assert (found.labels, list(only)) == (("0", "1"), ["test"])
    with pytest.raises(UserError, match=r"has no dev rows; set tasks\.t\.dev .*`bough init"):
        checked_rows.load("t", Task(**BARE, train=train), root=Path(), policy="error")
    with pytest.raises(UserError, match="neither labels nor train rows"):
        checked_rows.load("t", Task(**BARE, dev=train), root=Path(), policy="error", splits=["dev"])


def test_labels_of_test_rows_are_checked_where_there_are_any(write: Write) -> None:
    assert read(CLASSIFY, write("a.csv", "sentence,label\nx,\ny,\n")).labels is None
    path = write("b.csv", "sentence,label\nx,1\ny,\nz,9\n")
    assert "2 of 3 rows are bad" in mistake(CLASSIFY, path)
    assert read(CLASSIFY, path, labels="ignored").labels is None


def test_digest_is_of_the_contents(write: Write) -> None:
    one = read(CLASSIFY, write("a.csv", "sentence,label\nx,1\ny,0\n"))
    two = read(CLASSIFY, write("b.jsonl", '{"sentence":"x","label":1}\n{"sentence":"y","label":0}'))
    other = read(CLASSIFY, write("c.csv", "sentence,label\nx,1\ny,1\n"))
    pair = Rows([("a", "b")], None, ["1"], "", [1])
    assert checked_rows.digest(one) == checked_rows.digest(two) != checked_rows.digest(other)
    assert checked_rows.digest(pair) != checked_rows.digest(Rows([("a b",)], None, ["1"], "", [1]))
    assert len(checked_rows.digest(one)) == 64


def test_reading_needs_neither_torch_nor_arrow() -> None:
    code = (
        "import sys, bough.recipe.recipe, bough.data.checked_rows; "
        "heavy = {'torch', 'pyarrow', 'datasets', 'scipy', 'sklearn'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the CS224N files as they are handed out ----------------------------------------------------

_DATA = Path(os.environ.get("BOUGH_DATA", ""))
real = pytest.mark.skipif(
    not (os.environ.get("BOUGH_DATA") and _DATA.is_dir()),
    reason="BOUGH_DATA names no folder with the CS224N files",
)
_TEXT, _TEXTS = "sentence", ["sentence1", "sentence2"]


@real
@pytest.mark.real
@pytest.mark.parametrize(
    ("settings", "stem", "sizes"),
    [
        ({"kind": "classify", "text": _TEXT, "label": "sentiment"}, "ids-sst", (8544, 1101)),
        ({"kind": "classify", "text": _TEXT, "label": "sentiment"}, "ids-cfimdb", (1707, 245)),
        ({"kind": "classify", "text": _TEXTS, "label": "is_duplicate"}, "quora", (41442, 20212)),
        (
            {"kind": "regress", "text": _TEXTS, "label": "similarity", "range": [0, 5]},
            "sts",
            (6040, 863),
        ),
    ],
)
def test_cs224n(settings: dict[str, Any], stem: str, sizes: tuple[int, int]) -> None:
    task = Task(**settings, train=f"{stem}-train.csv", dev=f"{stem}-dev.csv")
    task, splits = checked_rows.load("t", task, root=_DATA, policy="skip")
    assert (len(splits["train"]), len(splits["dev"])) == sizes
    classes = {"ids-sst": tuple("01234"), "ids-cfimdb": ("0", "1"), "quora": ("0", "1")}
    assert task.labels == classes.get(stem)
    assert all(text == text.strip() for row in splits["dev"].texts for text in row)
    named = [(row.line, row.column, row.why.split(";")[0]) for row in splits["dev"].skipped]
    assert named == (
        [(2577, "is_duplicate", "the label is empty"), (14222, "sentence2", "the text is empty")]
        if stem == "quora"
        else []
    )
    assert not splits["train"].skipped


@real
@pytest.mark.real
def test_cs224n_test_files() -> None:
    sst = Task(kind="classify", text=_TEXT, label="sentiment", labels=list("01234"))
    sts = Task(kind="regress", text=_TEXTS, label="similarity", range=[0, 5])
    for task, file, size in (
        (sst, "ids-sst-test-student.csv", 2210),
        (sts, "sts-test-student.csv", 1725),
    ):
        found = checked_rows.read("t", task, file, root=_DATA, policy="error")
        assert (len(found), found.labels) == (size, None)
        assert len(found.ids[0]) == 25


def test_classes_are_read_by_value_or_by_name() -> None:
    task = Task(kind="classify", text="text", labels={0: "description", 1: "entity"})
    table = [("a", 0), ("b", "1"), ("c", "entity"), ("d", 1.0)]
    rows = checked_rows.read("trec", task, tuple(table), root=Path(), policy="error")
    assert rows.labels == [0, 1, 1, 1]
    with pytest.raises(UserError, match="is no class of this task; expected one of 0, 1"):
        checked_rows.read("trec", task, (("a", 2),), root=Path(), policy="error")
    turned = Task(kind="classify", text="text", labels={1: "0", 0: "1"})
    assert checked_rows.read(
        "x", turned, (("a", 0), ("b", 1)), root=Path(), policy="error"
    ).labels == [1, 0]
