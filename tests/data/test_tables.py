"""Files, hub sets and memory as tables: their forms, and what is no table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bough.data import checked_rows
from bough.errors import UserError
from bough.extras import install_line
from bough.recipe.tasks import Task
from tests.data.reading import BARE, CLASSIFY, Write, mistake, read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "sentence,label\nfine,1\nbad,0\n"),
        ("a.csv", "label;sentence\n1;fine\n0;bad\n"),
        ("a.csv", "\tid\tsentence\tlabel\n7\tx\t fine \t1.0\n8\ty\tbad\t0.0\n"),
        ("a.tsv", "label\tsentence\r\n1\tfine\r\n0\tbad\r\n"),
        ("a.tsv", "label|sentence\n1|fine\n0|bad"),
        ("a.csv", '"sentence","label"\n"fine","1"\n"bad","0"\n'),
        ("a.csv", 'id, "sentence", label\n1, "fine", 1\n2, "bad", 0\n'),
        ("a.csv", "\ufeffsentence,label\nfine,1\n\nbad,0\n\n"),
        ("a.csv", "\n\nsentence,label\rfine,1\rbad,0\r"),
        ("a.jsonl", '{"sentence": "fine", "label": 1}\n\n{"label": "0", "sentence": "bad"}\n'),
        ("a.json", '{"sentence": "fine", "label": 1.0}\r\n{"label": 0, "sentence": "bad"}'),
    ],
)
def test_forms_of_a_file(write: Write, name: str, content: str) -> None:
    found = read(CLASSIFY, write(name, content))
    assert found.texts == [("fine",), ("bad",)]
    assert found.labels == [1, 0]


def test_line_separators_of_unicode_end_no_line(write: Write) -> None:
    text = "a\u2028b\x85c\x0bd\x0ce"
    for name, content in (
        ("a.csv", f"sentence,label\n{text},1\nx,0\n"),
        ("a.jsonl", json.dumps({"sentence": text, "label": 1}, ensure_ascii=False) + "\n{"),
    ):
        found = read(CLASSIFY, write(name, content), "skip")
        assert found.texts[0] == (text,)
        assert found.lines[0] == (2 if name == "a.csv" else 1)


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"sentence": ["fine", None, "bad"], "label": [1, 0, 0], "other": [[1]] * 3})
    pq.write_table(table, tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    assert f"{path} row 2, column 'sentence': the text is empty" in mistake(CLASSIFY, path)
    found = read(CLASSIFY, path, "skip")
    assert (found.texts, found.labels, found.lines) == ([("fine",), ("bad",)], [1, 0], [1, 3])
    assert "row 2" in found.report()


def test_parquet_that_is_none(write: Write) -> None:
    assert "cannot be read as Parquet" in mistake(CLASSIFY, write("a.parquet", b"PAR1 not"))
    assert "cannot be read as Parquet" in mistake(CLASSIFY, write("b.parquet", b""))


def test_missing_extras_are_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    for source in (write("a.parquet", b"PAR1"), Task(**BARE, train={"hub": "x/y"}).train):
        assert install_line("hub") in mistake(CLASSIFY, source)


def test_a_column_twice(write: Write) -> None:
    path = write("a.csv", "id,id,sentence,sentence,label\n1,2,x,y,0\n")
    assert "has several columns 'sentence'" in mistake(CLASSIFY, path)


def test_bad_lines_of_json(write: Write) -> None:
    path = write("a.jsonl", '{"sentence": "x", "label": 1}\n{"sentence": \n[1]\n{"label": 1}\n')
    assert "line 2: the line is no JSON" in mistake(CLASSIFY, path)
    found = read(CLASSIFY, path, "skip")
    assert [row.line for row in found.skipped] == [2, 3, 4]
    assert "write one object per line" in mistake(CLASSIFY, write("b.json", "[{}]"))
    assert "line 1: the line is no JSON" in mistake(CLASSIFY, write("c.jsonl", "x\n"))


def test_wrong_encoding(write: Write) -> None:
    path = write("a.csv", "sentence,label\nfine,1\ncafé,0\n".encode("latin-1"))
    said = mistake(CLASSIFY, path)
    assert "line 3, column 'sentence': byte 0xe9 is not UTF-8; save the file as UTF-8" in said
    assert len(read(CLASSIFY, path, "skip")) == 1
    utf16 = write("b.csv", "sentence,label\nfine,1\n".encode("utf-16"))
    assert "is UTF-16" in mistake(CLASSIFY, utf16)
    header = write("c.csv", "sentence,label,é\nfine,1,0\n".encode("latin-1"))
    assert "line 1: the header is not UTF-8" in mistake(CLASSIFY, header)
    classes = write("d.csv", b"sentence,label\nfine,a\nso,b\nwell,caf\xe9\n")
    task = Task(**BARE, train=classes, dev=classes)
    with pytest.raises(UserError, match=r"d\.csv line 4, column 'label': byte 0xe9 is not UTF-8"):
        checked_rows.load("t", task, root=Path(), policy="error")
    assert checked_rows.load("t", task, root=Path(), policy="skip")[0].labels == ("a", "b")


def test_half_characters_of_json(write: Write) -> None:
    path = write("a.jsonl", '{"sentence": "a\\ud800", "label": 1}\n{"sentence": "b", "label": 1}\n')
    assert "\\ud800 is half a character" in mistake(CLASSIFY, path)


@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_empty_files(write: Write, name: str, content: str) -> None:
    assert "is empty" in mistake(CLASSIFY, write(name, content))


def test_names_that_lead_nowhere(write: Write, tmp_path: Path) -> None:
    write("train.csv", "sentence,label\n")
    assert "train.cvs does not exist; did you mean 'train.csv'?" in mistake(
        CLASSIFY, str(tmp_path / "train.cvs")
    )
    assert "does not exist (nor does its folder" in mistake(
        CLASSIFY, str(tmp_path / "no" / "a.csv")
    )
    assert "is a folder" in mistake(CLASSIFY, str(tmp_path))
    assert "its name must end in .csv, .tsv" in mistake(CLASSIFY, write("a.docx", "x"))
    assert "no such home folder" in mistake(CLASSIFY, "~there-is-no-such-user/a.csv")
    assert "does not exist" in mistake(CLASSIFY, "a\0b.csv")
    assert "cannot be read" in mistake(CLASSIFY, "a" * 5000 + ".csv")


def test_paths_start_at_the_root(write: Write, tmp_path: Path) -> None:
    write("a.csv", "sentence,label\nfine,1\n")
    found = checked_rows.read("t", CLASSIFY, "a.csv", root=tmp_path, policy="error")
    assert found.source == str(tmp_path / "a.csv")


def test_rows_in_memory_without_labels() -> None:
    assert read(CLASSIFY, (("fine",), ("bad",))).labels is None
    assert read(CLASSIFY, ({"sentence": "fine"},)).labels is None


def test_bad_rows_in_memory() -> None:
    assert "row 2: the row has 3 fields; expected sentence, label" in mistake(
        CLASSIFY, (("fine", 1), ("bad", 1, 2))
    )
    assert "there are no rows" in mistake(CLASSIFY, ())
    assert "expected a text" in mistake(CLASSIFY, (([], 1), ("x", 1)))
    assert "no class of this task" in mistake(CLASSIFY, (("x", [1]), ("x", 1)))


_HUB = """
import json, sys
from pathlib import Path
from bough.data import checked_rows
from bough.errors import UserError
from bough.recipe.tasks import Task

root = Path(sys.argv[1])
(root / "set").mkdir()
(root / "set" / "train.csv").write_text("text,stars\\nfine,1\\nbad,0\\n")
(root / "set" / "test.csv").write_text("text,stars\\nso,1\\n")
import datasets
features = datasets.Features(
    {"a": datasets.Value("string"), "b": datasets.Value("string"),
     "label": datasets.ClassLabel(names=["same", "different"])})
(root / "named").mkdir()
for split, labels in (("train", [1, 0]), ("validation", [0, 0]), ("test", [-1, -1])):
    data = {"a": ["x", "y"], "b": ["u", "v"], "label": labels}
    made = datasets.Dataset.from_dict(data, features=features)
    made.to_parquet(root / "named" / f"{split}.parquet")

def source(split, **more):
    return {"hub": "set", "split": split, "columns": {"sentence": "text", "label": "stars"}} | more

said = {}
def load(name, **settings):
    try:
        task, found = checked_rows.load(
            "t", Task(kind="classify", **settings), root=root, policy="error"
        )
        said[name] = [
            task.labels,
            {k: (list(v.texts), v.labels and list(v.labels)) for k, v in found.items()},
        ]
    except UserError as error:
        said[name] = str(error)

load("csv", text="sentence", train=source("train"), dev=source("test"))
load("names", text="sentence", train=source("train", labels=["bad", "good"]), dev=source("test"))
named = {"hub": str(root / "named")}
load("parquet", text=["a", "b"], train=named, dev=named | {"split": "validation"},
     test=named | {"split": "test"})
load("split", text="sentence", train=source("trian"), dev=source("test"))
load("column", text="sentence", train={"hub": "set", "columns": {"sentence": "texts"}}, dev=named)
load("ours", text="sentence", train={"hub": "set", "columns": {"sentense": "text"}}, dev=named)
load("nothing", text="sentence", train={"hub": "owner/there-is-no-such-set"}, dev=named)
from bough.data.prepared import table
table.LARGE = 0  # from here on what was made is kept
for column, labels in (("a", ["no", "yes"]), ("b", ["no", "yes"]), ("b", ["poor", "great"])):
    one = named | {"columns": {"text": column}, "labels": labels}
    load(f"kept {column} {labels[0]}", text="text", train=one, dev=one | {"split": "validation"})
print(json.dumps(said))
"""


def test_hub_sets_from_a_local_folder(tmp_path: Path) -> None:
    """In a process of its own: `datasets` fixes its cache folder when it is imported."""
    env = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    env["BOUGH_CACHE"] = str(tmp_path / "cache")
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _HUB, str(tmp_path / "data")],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    fine = {"train": [[["fine"], ["bad"]], [1, 0]], "dev": [[["so"]], [1]]}
    assert said["csv"] == [["0", "1"], fine]
    for (column, labels), texts in (
        (("a", ["no", "yes"]), [["x"], ["y"]]),
        (("b", ["no", "yes"]), [["u"], ["v"]]),
        (("b", ["poor", "great"]), [["u"], ["v"]]),
    ):
        found = {"train": [texts, [1, 0]], "dev": [texts, [0, 0]]}
        assert said[f"kept {column} {labels[0]}"] == [labels, found]
    assert said["parquet"] == [
        ["same", "different"],
        {
            "train": [[["x", "u"], ["y", "v"]], [1, 0]],
            "dev": [[["x", "u"], ["y", "v"]], [0, 0]],
            "test": [[["x", "u"], ["y", "v"]], None],
        },
    ]
    # Only the train source was given names, so the other's "1" is no class.
    assert "no class of this task; expected one of bad, good" in said["names"]
    assert "split trian cannot be loaded" in said["split"]
    assert "no column 'texts', only text, stars; did you mean 'text'?" in said["column"]
    assert "did you mean 'sentence'?" in said["ours"]
    assert "owner/there-is-no-such-set" in said["nothing"]
