import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bough.data import rows
from bough.data.rows import Policy, Rows
from bough.errors import UserError
from bough.recipe.tasks import Task

CLASSIFY = Task(kind="classify", text="sentence", labels=[0, 1])
REGRESS = Task(kind="regress", text=["a", "b"], range=[0, 5])

Write = Callable[[str, str | bytes], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> str:
        raw = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(raw)
        return str(tmp_path / name)

    return write


def read(task: Task, source: Any, policy: Policy = "error", **more: Any) -> Rows:
    return rows.read("t", task, source, root=Path("/nowhere"), policy=policy, **more)


def mistake(task: Task, source: Any, policy: Policy = "error", **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(task, source, policy, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- files as they are found ------------------------------------------------------------------


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


def test_lines_are_physical_lines(write: Write) -> None:
    path = write("a.csv", 'sentence,label\n"two\nlines",1\n\n"three\r\nlines\r\nhere",0\nlast,1\n')
    found = read(CLASSIFY, path)
    assert found.texts == [("two\nlines",), ("three\r\nlines\r\nhere",), ("last",)]
    assert found.lines == [2, 5, 8]
    assert found.ids == ["2", "5", "8"]


def test_line_separators_of_unicode_end_no_line(write: Write) -> None:
    text = "a\u2028b\x85c\x0bd\x0ce"
    for name, content in (
        ("a.csv", f"sentence,label\n{text},1\nx,0\n"),
        ("a.jsonl", json.dumps({"sentence": text, "label": 1}, ensure_ascii=False) + "\n{"),
    ):
        found = read(CLASSIFY, write(name, content), "skip")
        assert found.texts[0] == (text,)
        assert found.lines[0] == (2 if name == "a.csv" else 1)


def test_ids(write: Write) -> None:
    path = write("a.csv", "id,sentence,label\nx,fine,1\n,bad,0\n")
    assert read(CLASSIFY, path).ids == ["x", "3"]
    task = Task(kind="classify", text="id", label="label", labels=[0, 1])
    assert read(task, write("b.csv", "id,label\nx,1\n")).ids == ["2"]


def test_quotes_that_quote_nothing(write: Write) -> None:
    """A tab-separated file written without quoting has fields that begin with a quote."""
    path = write(
        "a.tsv",
        'label\ta\tb\n1\t"Shut up" he said\tx\n2\tfive 5" disks\ty "z"\n'
        '3\t"quoted ""well""\tz"\tw\n4\t"open\tw\n5\tv\tclose"\n',
    )
    found = read(REGRESS, path)
    assert found.texts == [
        ('"Shut up" he said', "x"),
        ('five 5" disks', 'y "z"'),
        ('quoted "well"\tz', "w"),
        ('"open', "w"),
        ("v", 'close"'),
    ]
    assert found.lines == [2, 3, 4, 5, 6]
    assert "2 rows hold quotes" in found.notes[0]


def test_a_lost_quote_costs_its_row_only(write: Write) -> None:
    path = write("a.csv", 'sentence,label\nfine,1\n"lost,0\nbad,0\n"good, too",1\nend,1\n')
    said = mistake(CLASSIFY, path)
    assert f"{path} line 3: a quote opens a field and does not close it" in said
    assert "1 of 5 rows is bad" in said
    assert "rows: skip" in said
    found = read(CLASSIFY, path, "skip")
    assert found.texts == [("fine",), ("bad",), ("good, too",), ("end",)]
    assert [row.line for row in found.skipped] == [3]


def test_a_lost_quote_does_not_swallow_rows(write: Write) -> None:
    """Lines 2 to 6 would pass for one long quoted field."""
    body = "".join(f"{n},text {n},1\n" for n in range(3, 6))
    path = write("a.csv", f'id,sentence,label\n2,"lost,0\n{body}6,found",1\n')
    found = read(CLASSIFY, path, "skip")
    assert found.lines == [3, 4, 5, 6]
    assert "closes only on line 6" in found.skipped[0].why


def test_paragraphs_in_quotes_are_kept(write: Write) -> None:
    path = write("a.csv", 'sentence,label\n"Dear Sir,\nyes, indeed.\nbye",1\n')
    assert read(CLASSIFY, path).texts == [("Dear Sir,\nyes, indeed.\nbye",)]


def test_header_with_one_name_less(write: Write) -> None:
    path = write("a.csv", "sentence,label\n0,fine,1\n1,bad,0\n")
    found = read(CLASSIFY, path)
    assert found.texts == [("fine",), ("bad",)]
    assert "unnamed index" in found.notes[0]
    trailing = write("b.tsv", "sentence\tlabel\nfine\t1\t\nbad\t0\t\n")
    assert read(CLASSIFY, trailing).labels == [1, 0]


def test_rows_of_another_width(write: Write) -> None:
    path = write("a.csv", "sentence,label\nfine,1\na, b,0\nalone\n")
    assert "line 3: the row has 3 fields; expected 2" in mistake(CLASSIFY, path)
    assert "2 of 3 rows are bad" in mistake(CLASSIFY, path)
    assert len(read(CLASSIFY, path, "skip")) == 1


def test_a_document_longer_than_csv_likes(write: Write) -> None:
    import csv

    limit = csv.field_size_limit()
    path = write("a.csv", f"sentence,label\n{'long ' * 50_000},1\n")
    assert len(read(CLASSIFY, path).texts[0][0]) == 249_999
    assert csv.field_size_limit() == limit


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
    for source in (write("a.parquet", b"PAR1"), Task(**_BARE, train={"hub": "x/y"}).train):
        assert 'pip install "bough[hub]"' in mistake(CLASSIFY, source)


# --- memory and hub ---------------------------------------------------------------------------

_BARE: dict[str, Any] = {"kind": "classify", "text": "sentence"}


@pytest.mark.parametrize(
    "source",
    [
        [{"sentence": "fine", "label": 1}, {"sentence": "bad", "label": "0"}],
        [("fine", 1), ["bad", 0.0]],
        {"sentence": ["fine", "bad"], "label": [1, 0]},
    ],
)
def test_rows_in_memory(source: Any) -> None:
    task, splits = rows.load(
        "t", Task(**_BARE, train=source, dev=source), root=Path(), policy="error"
    )
    assert task.labels == ("0", "1")
    assert splits["dev"].texts == [("fine",), ("bad",)]
    assert splits["dev"].labels == [1, 0]
    assert splits["train"].source == "tasks.t.train"


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
from bough import rows
from bough.mistakes import Mistake
from bough.tasks import Task

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
        task, found = rows.load("t", Task(kind="classify", **settings), root=root, policy="error")
        said[name] = [task.labels, {k: (v.texts, v.labels) for k, v in found.items()}]
    except Mistake as mistake:
        said[name] = str(mistake)

load("csv", text="sentence", train=source("train"), dev=source("test"))
load("names", text="sentence", train=source("train", labels=["bad", "good"]), dev=source("test"))
named = {"hub": str(root / "named")}
load("parquet", text=["a", "b"], train=named, dev=named | {"split": "validation"},
     test=named | {"split": "test"})
load("split", text="sentence", train=source("trian"), dev=source("test"))
load("column", text="sentence", train={"hub": "set", "columns": {"sentence": "texts"}}, dev=named)
load("ours", text="sentence", train={"hub": "set", "columns": {"sentense": "text"}}, dev=named)
load("nothing", text="sentence", train={"hub": "owner/there-is-no-such-set"}, dev=named)
print(json.dumps(said))
"""


def test_hub_sets_from_a_local_folder(tmp_path: Path) -> None:
    """In a process of its own: `datasets` fixes its cache folder when it is imported."""
    env = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _HUB, str(tmp_path / "data")],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    fine = {"train": [[["fine"], ["bad"]], [1, 0]], "dev": [[["so"]], [1]]}
    assert said["csv"] == [["0", "1"], fine]
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


# --- what can be wrong ------------------------------------------------------------------------


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


def test_a_column_twice(write: Write) -> None:
    path = write("a.csv", "id,id,sentence,sentence,label\n1,2,x,y,0\n")
    assert "has several columns 'sentence'" in mistake(CLASSIFY, path)


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


def test_bad_lines_of_json(write: Write) -> None:
    path = write("a.jsonl", '{"sentence": "x", "label": 1}\n{"sentence": \n[1]\n{"label": 1}\n')
    assert "line 2: the line is no JSON" in mistake(CLASSIFY, path)
    found = read(CLASSIFY, path, "skip")
    assert [row.line for row in found.skipped] == [2, 3, 4]
    assert "write one object per line" in mistake(CLASSIFY, write("b.json", "[{}]"))
    assert "line 1: the line is no JSON" in mistake(CLASSIFY, write("c.jsonl", "x\n"))


def test_empty_text(write: Write) -> None:
    path = write("a.csv", "a,b,label\nx, ,1\n,y,2\nx,y,3\n")
    said = mistake(REGRESS, path)
    assert "line 2, column 'b': the text is empty; expected at least one character" in said
    assert "2 of 3 rows are bad" in said


def test_values_are_shortened(write: Write) -> None:
    path = write("a.csv", f"sentence,label\nfine,1\nbad,{'long' * 100}\n")
    found = read(CLASSIFY, path, "skip")
    assert len(found.skipped[0].value) == 60


def test_wrong_encoding(write: Write) -> None:
    path = write("a.csv", "sentence,label\nfine,1\ncafé,0\n".encode("latin-1"))
    said = mistake(CLASSIFY, path)
    assert "line 3, column 'sentence': byte 0xe9 is not UTF-8; save the file as UTF-8" in said
    assert len(read(CLASSIFY, path, "skip")) == 1
    utf16 = write("b.csv", "sentence,label\nfine,1\n".encode("utf-16"))
    assert "is UTF-16" in mistake(CLASSIFY, utf16)
    header = write("c.csv", "sentence,label,é\nfine,1,0\n".encode("latin-1"))
    assert "line 1: the header is not UTF-8" in mistake(CLASSIFY, header)


def test_half_characters_of_json(write: Write) -> None:
    path = write("a.jsonl", '{"sentence": "a\\ud800", "label": 1}\n{"sentence": "b", "label": 1}\n')
    assert "\\ud800 is half a character" in mistake(CLASSIFY, path)


@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_empty_files(write: Write, name: str, content: str) -> None:
    assert "is empty" in mistake(CLASSIFY, write(name, content))


def test_header_only(write: Write) -> None:
    path = write("a.csv", "sentence,label\n\n")
    assert f"{path} has a header and no rows" in mistake(CLASSIFY, path)


def test_broken_header(write: Write) -> None:
    assert "the header has broken quoting" in mistake(CLASSIFY, write("a.csv", '"sentence,label\n'))


def test_no_row_can_be_used(write: Write) -> None:
    path = write("a.csv", "sentence,label\nx,7\ny,8\n")
    assert "none of the 2 rows can be used" in mistake(CLASSIFY, path, "skip")


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
    found = rows.read("t", CLASSIFY, "a.csv", root=tmp_path, policy="error")
    assert found.source == str(tmp_path / "a.csv")


# --- classes and splits -----------------------------------------------------------------------


def load(train: str, dev: str, policy: Policy = "error", **settings: Any) -> Any:
    task = Task(**(_BARE | settings), train=train, dev=dev)
    return rows.load("t", task, root=Path("/nowhere"), policy=policy)


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


@pytest.mark.parametrize(
    ("labels", "settings", "said"),
    [
        (["1", "1.0"], {}, "only the class '1'; a classify task needs two or more"),
        (["", ""], {}, "no label at all"),
        ([str(n / 8) for n in range(40)], {}, "set tasks.t.kind to regress"),
        ([f"word {n}" for n in range(60)], {}, "60 different labels in 60 rows"),
        (["0", "2.5"], {"kind": "regress"}, r"set tasks.t.range to \[0, 2.5\]"),
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
    task = Task(**_BARE, train=train, dev=train, test=test)
    _, splits = rows.load("t", task, root=Path(), policy="error")
    assert list(splits) == ["train", "dev", "test"]
    assert splits["test"].labels is None
    found, only = rows.load("t", task, root=Path(), policy="error", splits=["test"])
    assert (found.labels, list(only)) == (("0", "1"), ["test"])
    with pytest.raises(UserError, match=r"has no dev rows; set tasks\.t\.dev"):
        rows.load("t", Task(**_BARE, train=train), root=Path(), policy="error")
    with pytest.raises(UserError, match="neither labels nor train rows"):
        rows.load("t", Task(**_BARE, dev=train), root=Path(), policy="error", splits=["dev"])


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
    assert rows.digest(one) == rows.digest(two) != rows.digest(other)
    assert rows.digest(pair) != rows.digest(Rows([("a b",)], None, ["1"], "", [1]))
    assert len(rows.digest(one)) == 64


def test_reading_needs_neither_torch_nor_arrow() -> None:
    code = (
        "import sys, bough.recipe, bough.rows; "
        "heavy = {'torch', 'pyarrow', 'datasets', 'scipy', 'sklearn', 'numpy'} & set(sys.modules); "
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
    task, splits = rows.load("t", task, root=_DATA, policy="skip")
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
        found = rows.read("t", task, file, root=_DATA, policy="error")
        assert (len(found), found.labels) == (size, None)
        assert len(found.ids[0]) == 25
