"""Rows to be answered: lines and tables are read, and what cannot be read is named."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections import deque
from pathlib import Path

import pytest

from bough.data import csv_reader, tables
from bough.errors import UserError
from bough.inference import input_files
from bough.inference.input_files import EVERYTHING, Choice
from bough.inference.predict_file import answer_file
from bough.inference.torch_model import MultiTaskModel
from tests import serving


@pytest.fixture(scope="module")
def model() -> MultiTaskModel:
    return serving.model()


@pytest.fixture(scope="module")
def folder(model: MultiTaskModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(model.save(tmp_path_factory.mktemp("model")))


def read_csv(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


# --- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "tasks", "message"),
    [
        (b"", (), r"in.txt: there is no text in it"),
        (b"\n \n\t\n", (), r"in.txt: there is no text in it"),
        (b"a\n\nb\n", (), r"in.txt, line 2 is empty"),
        (b"a\n\nb\n\n", (), r"in.txt, line 2 is empty"),
        (b"a\tb\tc\n", (), r"line 1 is not one text, or two with a tab between"),
        (b"fine\nna\xefve\n", (), r"line 2: byte 3 is not UTF-8"),
        (b"fine\n", ("same",), r"line 1: task 'same' judges a pair, this is one text"),
        (b"fine\n", ("moot",), r"no task 'moot' .*did you mean 'mood'"),
    ],
)
def test_bad_lines(
    content: bytes, tasks: tuple[str, ...], message: str, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.csv", Choice(tasks))
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("skip", [False, True])
def test_blank_lines_at_the_end_are_no_texts(
    skip: bool, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "in.txt", tmp_path / "out.csv"
    file.write_bytes(b"a leaf\nthe old tree\n\n  \r\n\t\n")
    answer_file(folder, str(file), out, Choice(skip=skip))
    assert [row["id"] for row in read_csv(out)] == ["a leaf", "the old tree"]
    assert "left out" not in capsys.readouterr().err


@pytest.mark.parametrize("size", [1, 3, 10, 2**16])
def test_lines_are_put_together_whatever_is_read_at_a_time(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "READ", size)
    for text in (b"", b"a", b"a\n", b"\n", b"one\n\ntwo three\nfour", b"\r\n\x0cx\n"):
        lines = [line for line in input_files._as_written(io.BytesIO(text)) if line is not None]
        assert lines == list(io.BytesIO(text))


def test_a_pipe_with_a_name(folder: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "bough", "predict", folder, str(pipe)]
    with subprocess.Popen([*command, "-o", str(tmp_path / "out.csv")]) as process:
        pipe.write_text("the old tree\none leaf\n", encoding="utf-8")
    assert process.returncode == 0
    assert len((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 3


# --- tables --------------------------------------------------------------------------------------


def test_a_table_is_never_held_whole(model: MultiTaskModel, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    with file.open("w", encoding="utf-8") as out:
        out.write("id,text\n")
        out.writelines(f"r{n},{'leaf ' * 60}{n}\n" for n in range(50_000))
    tracemalloc.start()
    found = input_files.table(model, str(file), EVERYTHING)
    last = deque(found.rows, maxlen=1).pop()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.total == 50_000
    assert last is not None
    assert (last.label, last.texts) == ("r49999", {"mood": f"{'leaf ' * 60}49999"})
    assert peak < file.stat().st_size / 3


def test_a_blank_line_of_a_table_with_one_column_is_a_row(folder: str, tmp_path: Path) -> None:
    """Else the answers below it would stand one line too high."""
    file = tmp_path / "in.csv"
    file.write_text("text\nthe old tree\n\none leaf\n\n\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"in.csv line 3, column 'text': the text is empty") as said:
        answer_file(folder, str(file), tmp_path / "out.csv")
    assert str(said.value).endswith("; fix the file, or leave out what cannot be read with --skip")
    assert not (tmp_path / "out.csv").exists()


def test_what_was_assumed_of_a_table_is_said(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.tsv"
    file.write_text('text\tlabel\n"the old\tgood\nis green"\tbad\n', encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv")
    assert "1 row holds quotes that quote no field" in capsys.readouterr().err


def test_a_row_is_answered_by_the_tasks_that_can_read_it(folder: str, tmp_path: Path) -> None:
    file, out = tmp_path / "in.csv", tmp_path / "out.csv"
    file.write_text("text,one,two\na leaf,,\n,in,on\n", encoding="utf-8")
    answer_file(folder, str(file), out, Choice(skip=True))
    first, second = read_csv(out)
    assert [bool(first[task]) for task in ("mood", "same", "near")] == [True, False, False]
    assert [bool(second[task]) for task in ("mood", "same", "near")] == [False, True, True]


def test_the_columns_to_read_can_be_named(
    model: MultiTaskModel, folder: str, tmp_path: Path
) -> None:
    file, out = tmp_path / "in.csv", tmp_path / "out.jsonl"
    file.write_text("review,reply\nthe old tree,a leaf\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"expected mood: text; .*; or say which to read with --text"
    ):
        answer_file(folder, str(file), out)
    for text, asked in ((("review",), "the old tree"), (("review", "reply"), None)):
        answer_file(folder, str(file), out, Choice(text=text))
        (found,) = map(json.loads, out.read_text(encoding="utf-8").splitlines())
        del found["id"]
        assert serving.same(found, model.predict(asked or ("the old tree", "a leaf")))
    answer_file(folder, str(file), out, Choice(("near",), ("review", "reply")))
    assert json.loads(out.read_text(encoding="utf-8")).keys() == {"id", "near"}
    for choice, message in (
        (Choice(text=("reviw",)), r"has no column 'reviw'.*did you mean 'review'"),
        (Choice(("mood",), ("review", "reply")), r"task 'mood' judges one text: name one"),
        (Choice(("near",), ("review",)), r"task 'near' judges a pair: name two columns"),
        (Choice(text=("a", "b", "c")), "name at most two columns"),
    ):
        with pytest.raises(UserError, match=message):
            answer_file(folder, str(file), out, choice)
    (tmp_path / "in.txt").write_text("a leaf\n", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"--text is for the columns of a table; .*in.txt has lines"
    ):
        answer_file(folder, str(tmp_path / "in.txt"), out, Choice(text=("review",)))


def test_a_column_may_come_late(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which tasks answer follows from all rows, and a row without its text is a bad one."""
    monkeypatch.setattr(tables, "PART", 2)
    file = tmp_path / "in.jsonl"
    rows = [{"note": 1}] * 5 + [{"text": "one leaf"}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(UserError, match=r"in.jsonl line 1, column 'text': the text is empty"):
        answer_file(folder, str(file), tmp_path / "out.csv")
    with pytest.raises(UserError, match=r"has no column 'one'"):
        answer_file(folder, str(file), tmp_path / "out.csv", Choice(("same",)))


def test_columns_without_a_name_do_not_matter(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text,,\nthe old tree,1,2\n", encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv")
    assert len((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 2


# --- rows that are left out ----------------------------------------------------------------------


def test_bad_rows_can_be_left_out(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PART", 2)
    monkeypatch.setattr(csv_reader, "LOOK", 2)
    file, out = tmp_path / "in.csv", tmp_path / "out.csv"
    good = [2, 4, 9]
    cells = ["" if line not in good else f"leaf {line}" for line in range(2, 12)]
    file.write_text("\n".join(["text,one,two", *(f"{c},{c},x" for c in cells)]), encoding="utf-8")
    answer_file(folder, str(file), out, Choice(skip=True))
    assert [row["id"] for row in read_csv(out)] == ["2", "4", "9"]
    said = capsys.readouterr().err
    assert "left out 7: line 3, column 'text': the text is empty" in said
    assert said.endswith("; and 2 more\n")
    file.write_text("text\n\n\n\n,\n", encoding="utf-8")
    with pytest.raises(UserError, match="no row of it can be read"):
        answer_file(folder, str(file), tmp_path / "none.csv", Choice(skip=True))
    lines = tmp_path / "in.txt"
    lines.write_bytes(b"a leaf\n\nna\xefve\none\ttwo\tthree\nthe old tree\n")
    answer_file(folder, str(lines), out, Choice(skip=True))
    assert [row["id"] for row in read_csv(out)] == [
        "a leaf",
        "the old tree",
    ]
    assert "left out 3: line 2 is empty: ''; line 3: byte 3 is not UTF-8" in capsys.readouterr().err
    lines.write_text("\n\n", encoding="utf-8")
    with pytest.raises(UserError, match="there is no text in it"):
        answer_file(folder, str(lines), tmp_path / "none.csv", Choice(skip=True))
    lines.write_text("\none\ttwo\tthree\n", encoding="utf-8")
    with pytest.raises(UserError, match="no line of it can be read"):
        answer_file(folder, str(lines), tmp_path / "none.csv", Choice(skip=True))
    assert not (tmp_path / "none.csv").exists()


def test_answers_of_single_tasks_that_are_left_out_are_told(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "in.csv", tmp_path / "out.csv"
    file.write_text("text,one,two\na leaf,in,on\nthe tree,,on\n,,\n", encoding="utf-8")
    answer_file(folder, str(file), out, Choice(skip=True))
    assert [row["id"] for row in read_csv(out)] == ["2", "3"]
    said = capsys.readouterr().err
    why = "line 3, column 'one': the text is empty; expected at least one character (found '')"
    assert f"left out 2 answers of single tasks: task 'same': {why}; task 'near': {why}\n" in said
    assert "left out 1: line 4, column 'text'" in said
    file.write_text("text,one,two\na leaf,in,on\n,on,in\n", encoding="utf-8")
    answer_file(folder, str(file), out, Choice(skip=True))
    said = capsys.readouterr().err
    assert "left out 1 answer of a single task: task 'mood': line 3" in said
    assert "left out 1:" not in said


HALF = r"line 1, column 'city': \\ud83d is half a character"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (
            "in.csv",
            b"text,city\na leaf,K\xf6ln\na tree,Bonn\n",
            "line 2, .* 0xf6 is not UTF-8",
        ),
        ("in.jsonl", b'{"text": "a leaf", "city": "\\ud83d"}\n{"text": "a tree"}\n', HALF),
        ("in.jsonl", b'{"text": "a leaf", "city": [{"x": "\\ud83d"}]}\n{"text": "a tree"}\n', HALF),
    ],
)
@pytest.mark.parametrize("out", ["out.csv", "out.jsonl"])
def test_cells_that_come_along_are_held_to_what_texts_are(
    name: str, content: bytes, why: str, out: str, folder: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=why) as said:
        answer_file(folder, str(tmp_path / name), tmp_path / out, Choice(keep=True))
    assert str(said.value).startswith(f"{tmp_path / name} line ")
    assert str(said.value).endswith("; fix the file, or leave out what cannot be read with --skip")
    assert not (tmp_path / out).exists()
    answer_file(folder, str(tmp_path / name), tmp_path / out, Choice(keep=True, skip=True))
    assert "1 row answered" in (told := capsys.readouterr().err)
    assert re.search(f"left out 1: {why}", told)


def test_a_columns_name_that_cannot_be_written(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps({"text": "a leaf", "\ud83d": 1}), encoding="utf-8")
    with pytest.raises(UserError, match=r"the name of column .*: \\ud83d is half a character"):
        answer_file(folder, str(file), tmp_path / "out.csv", Choice(keep=True))
