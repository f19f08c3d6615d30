"""bough predict: texts from files and pipes, and one sentence per mistake."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bough.runs.run_dir import Run
from tests.command import BOUGH, QUIET, bough


def test_predict_from_standard_input(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "A fine film.\nOne question?\tAnother question?\n"
    stream = io.TextIOWrapper(io.BytesIO(lines.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert bough("predict", run.folder) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["id"] == "A fine film."
    assert set(first) == {"id", "sentiment"}
    assert set(second) == {"id", "questions", "similarity"}
    assert 0 <= second["similarity"]["value"] <= 5


def test_a_blank_last_line_of_a_pipe(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n\n")))
    assert bough("predict", run.folder) == 0
    told = capsys.readouterr()
    assert [json.loads(line)["id"] for line in told.out.splitlines()] == ["one", "two"]
    assert told.err == ""


def on_a_terminal(command: str) -> bytes:
    """All that the command writes to a terminal of its own."""
    ours, its = pty.openpty()
    process = subprocess.Popen(["bash", "-c", command], env=QUIET, stdout=its, stderr=its)
    os.close(its)
    told = b""
    with suppress(OSError):  # which is how a terminal's end is told
        while part := os.read(ours, 2**16):
            told += part
    os.close(ours)
    assert process.wait() == 0
    return told


def test_no_bar_where_the_answers_are_seen(run: Run) -> None:
    Path("in.csv").write_text("text\nA fine film.\nTwo hours.\n")
    asked = f"'{BOUGH[0]}' predict '{run.folder}' in.csv"
    for command in (asked, f"{asked} | cat"):
        lines = on_a_terminal(command).splitlines()
        assert [json.loads(line)["id"] for line in lines] == ["2", "3"], "and no byte besides"
    for command in (f"{asked} > out.jsonl", f"{asked} -o out.jsonl"):
        assert b"answering" in on_a_terminal(command)
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == ["2", "3"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "txt"])
def test_predict_files(kind: str, run: Run) -> None:
    pairs = [("Why is that?", "Why?"), ('He said "no", twice.', "Two, three"), ("東京?", "a")]
    fields = ["id", "question1", "question2"]
    rows = [dict(zip(fields, (f"r{i}", *pair), strict=True)) for i, pair in enumerate(pairs)]
    file = Path(f"in.{kind}")
    if kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "txt":
        file.write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    else:
        with open(file, "w", newline="") as out:
            writer = csv.DictWriter(out, fields, delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    task = ["--task", "questions"]
    assert bough("predict", run.folder, file, *task, "-o", "out.csv") == 0
    assert bough("predict", run.folder, file, *task, "-o", "out.jsonl") == 0
    with open("out.csv", newline="") as found:
        table = list(csv.DictReader(found))
    ids = ["\t".join(pair) for pair in pairs] if kind == "txt" else ["r0", "r1", "r2"]
    assert [row["id"] for row in table] == ids
    told = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["questions"]["label"] for row in told] == [row["questions"] for row in table]
    assert [row["id"] for row in told] == ids


def test_mistakes_in_answering(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.txt").write_text("Fine.\n")
    mistakes: list[tuple[list[str | Path], str]] = [
        ([run.folder, "in.txt", "-o", "out.xml"], "written as .csv or .jsonl"),
        ([run.folder, "in.txt", "-o", "no/out.csv"], "there is no folder"),
        ([run.folder, "none.txt"], "none.txt"),
        ([run.folder, "in.txt", "--task", "sentimant"], "did you mean 'sentiment'"),
        ([run.folder.parent, "in.txt"], "no model there"),
    ]
    for words, said in mistakes:
        assert bough("predict", *words) == 2
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1


def test_a_text_is_no_file(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert bough("predict", run.folder, "A fine film.") == 2
    said = capsys.readouterr().err
    assert said.startswith("bough: 'A fine film.': no such file; to answer a text itself:")


def test_a_reader_that_goes_away(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("A fine film.\n" * 3000)
    command = f"'{BOUGH[0]}' predict '{run.folder}' in.txt | head -n 1"
    told = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=QUIET, capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout)["id"] == "A fine film."
    assert "Traceback" not in told.stderr
    assert "Exception" not in told.stderr


def test_answers_below_a_probability_are_left_out(run: Run) -> None:
    Path("in.txt").write_text("A fine film.\nTwo hours I will not get back.\n")
    assert bough("predict", run.folder, "in.txt", "-o", "all.csv", "--abstain", "0") == 0
    assert bough("predict", run.folder, "in.txt", "-o", "none.csv", "--abstain", "1") == 0
    tables = []
    for name in ("all.csv", "none.csv"):
        with open(name, newline="") as found:
            tables.append(list(csv.DictReader(found)))
    for every, none in zip(*tables, strict=True):
        assert every["sentiment"]
        assert none["sentiment"] == ""
        assert every["sentiment.score"] == none["sentiment.score"]
    assert bough("predict", run.folder, "in.txt", "--abstain", "2") == 2


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_other_columns_come_along_on_request(
    kind: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.csv").write_text("id,text,city,note\na,A fine film.,Rome,=1+1\nb,Not for me.,,x\n")
    assert bough("predict", run.folder, "in.csv", "--keep", "-o", f"out.{kind}") == 0
    rows: list[dict[str, Any]]
    if kind == "csv":
        with open("out.csv", newline="") as found:
            rows = list(csv.DictReader(found))
        assert list(rows[0]) == ["id", "text", "city", "note", "sentiment", "sentiment.score"]
        assert rows[0]["note"] != "=1+1", "a sheet would compute it"
    else:
        rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
        assert rows[0]["note"] == "=1+1"
        assert rows[0]["sentiment"]["label"]
    assert [(row["id"], row["city"]) for row in rows] == [("a", "Rome"), ("b", "")]
    assert bough("predict", run.folder, "in.csv", "-o", f"plain.{kind}") == 0
    assert "Rome" not in Path(f"plain.{kind}").read_text()
    Path("odd.csv").write_text("text,sentiment\nFine.,good\n")
    assert bough("predict", run.folder, "odd.csv", "--keep") == 2
    assert "has a column 'sentiment', as the answers have" in capsys.readouterr().err
    Path("in.txt").write_text("Fine.\n")
    assert bough("predict", run.folder, "in.txt", "--keep") == 2
    assert "--keep is for the columns of a table" in capsys.readouterr().err
