"""Answering files: every row is answered, in order, in the form of the file that is asked for."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bough.errors import UserError
from bough.inference import input_files, predict_file
from bough.inference.input_files import Choice
from bough.inference.model import WINDOW, Text
from bough.inference.predict_file import answer_file
from bough.inference.torch_model import MultiTaskModel
from bough.spans.cells import spans_of
from tests import serving, tiny


@pytest.fixture(scope="module")
def model() -> MultiTaskModel:
    return serving.model()


@pytest.fixture(scope="module")
def folder(model: MultiTaskModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(model.save(tmp_path_factory.mktemp("model")))


def lines(texts: list[Any]) -> str:
    return "".join((t if isinstance(t, str) else "\t".join(t)) + "\n" for t in texts)


def read_jsonl(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


# --- order and form ------------------------------------------------------------------------------


def test_text_files_keep_their_order(model: MultiTaskModel, folder: str, tmp_path: Path) -> None:
    texts = serving.some_texts(WINDOW + 300)  # more than are sorted at a time
    (tmp_path / "in.txt").write_text(lines(texts), encoding="utf-8")
    answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.jsonl")
    found = read_jsonl(tmp_path / "out.jsonl")
    assert [row.pop("id") for row in found] == lines(texts).splitlines()
    assert all(serving.same(a, b) for a, b in zip(found, model.predict(texts), strict=True))


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_tables_are_answered_by_every_task_they_fit(
    ending: str, model: MultiTaskModel, folder: str, tmp_path: Path
) -> None:
    pairs = [("the old tree", "one root"), ("is green", "very good"), ("who does", "slow film")] * 5
    names = ["id", "text", "one", "two"]
    cells = [[f"r{i}", a, a, b] for i, (a, b) in enumerate(pairs)]
    file = tmp_path / f"in.{ending}"
    if ending == "jsonl":
        rows = [json.dumps(dict(zip(names, row, strict=True))) for row in cells]
        file.write_text("\n".join(rows), encoding="utf-8")
    else:
        with open(file, "w", encoding="utf-8", newline="") as text:
            csv.writer(text, delimiter="," if ending == "csv" else "\t").writerows([names, *cells])
    answer_file(folder, str(file), tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as text:
        found = list(csv.DictReader(text))
    assert [row["id"] for row in found] == [f"r{i}" for i in range(15)]
    assert list(found[0]) == ["id", "mood", "mood.score", "same", "same.score", "near"]
    for row, (one, two) in zip(found, pairs, strict=True):
        single, both = model.predict(one), model.predict((one, two))
        assert row["mood"] == single["mood"].label
        assert row["same"] == both["same"].label
        assert float(row["near"]) == pytest.approx(both["near"].value, abs=1e-3)


def test_chosen_tasks_only(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one root\ttwo\nold tree\tis green\n", encoding="utf-8")
    answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.csv", Choice(("near",)))
    header, *rows = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert header == "id,near"
    assert len(rows) == 2


def test_a_task_asked_for_twice_answers_once(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text\nthe old tree\n", encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv", Choice(("mood", "mood")))
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith("id,mood,mood.score\n")


def test_a_row_with_two_texts_gets_both_answers(model: MultiTaskModel) -> None:
    pair = ("one", "two")
    row: dict[str, Text] = {"mood": "the old tree", "same": pair, "near": pair}
    ((answered, found),) = predict_file.answers(model, [input_files.Row("a", row)])
    assert answered.label == "a"
    assert list(found) == ["mood", "same", "near"]


def test_texts_that_were_cut_are_counted(
    model: MultiTaskModel, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "tree " * 2 * model.longest
    (tmp_path / "in.txt").write_text(f"a leaf\n{long}\n{long}\tone\n", encoding="utf-8")
    answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.jsonl")
    assert f"cut after {model.longest} tokens: 2 of them" in capsys.readouterr().err
    found = read_jsonl(tmp_path / "out.jsonl")
    assert ["cut" in row["mood"] for row in found[:2]] == [False, True]


def test_what_was_written_is_said(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text\nthe old tree\none leaf\n\n", encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv")
    assert f"2 rows answered: {tmp_path / 'out.csv'}" in capsys.readouterr().err


# --- other columns that come along --------------------------------------------------------------


def kept(folder: str, place: Path, rows: list[dict[str, Any]], out: str) -> list[dict[str, Any]]:
    """The rows as JSON lines, answered with all their columns."""
    (place / "in.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    answer_file(folder, str(place / "in.jsonl"), place / out, Choice(keep=True))
    if out.endswith(".jsonl"):
        return read_jsonl(place / out)
    with open(place / out, encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text, strict=True))


@pytest.mark.parametrize("out", ["out.csv", "out.jsonl"])
def test_a_line_that_ends_within_a_cell_stays_in_it(out: str, folder: str, tmp_path: Path) -> None:
    rows = [{"text": "the old tree", "note": "one\rtwo"}, {"text": "a leaf", "note": "x\r\ny"}]
    assert [row["note"] for row in kept(folder, tmp_path, rows, out)] == ["one\rtwo", "x\r\ny"]


def test_a_list_in_a_sheet_is_json(folder: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "the old tree", "note": ["né", 1, math.nan]},
        {"text": "a leaf", "note": {"at": [None, True]}},
        {"text": "one root", "note": None},
    ]
    found = [row["note"] for row in kept(folder, tmp_path, rows, "out.csv")]
    assert found == ['["né", 1, null]', '{"at": [null, true]}', ""]


def test_spans_in_a_sheet_can_be_read_again(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in.conll").write_text("the O\nold B-wood\n\ntree O\n", encoding="utf-8")
    answer_file(folder, str(tmp_path / "in.conll"), tmp_path / "out.csv", Choice(keep=True))
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as text:
        found = [(row["text"], row["spans"]) for row in csv.DictReader(text)]
    assert found == [("the old", '[{"start":4,"end":7,"label":"wood"}]'), ("tree", "[]")]
    assert [spans_of(spans, text) for text, spans in found] == [((4, 7, "wood"),), ()]


def test_what_is_no_number_is_null_in_json(folder: str, tmp_path: Path) -> None:
    odd = {"note": math.nan, "more": {"deep": [1.5, math.inf, {"x": -math.inf}]}, "size": 2}
    (found,) = kept(folder, tmp_path, [{"text": "the old tree", **odd}], "out.jsonl")
    assert found["note"] is None
    assert found["more"] == {"deep": [1.5, None, {"x": None}]}
    assert found["size"] == 2
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert not re.search("nan|infinity", written, re.IGNORECASE)


# --- streams -------------------------------------------------------------------------------------


def stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_standard_input_to_standard_output(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(monkeypatch, b"\xef\xbb\xbfthe old tree\r\none\ttwo\n\x0ca leaf")
    answer_file(folder, "-", None)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], *list(row)[1:]) for row in found] == [
        ("the old tree", "mood"), ("one\ttwo", "same", "near"), ("a leaf", "mood"),
    ]  # fmt: skip


def test_a_standard_output_that_is_not_utf_8(folder: str) -> None:
    text = "the olé € tree"
    command = [sys.executable, "-m", "bough", "predict", folder]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(
        command, input=text.encode(), capture_output=True, env=environment, check=True
    )
    assert done.stdout.isascii()
    assert json.loads(done.stdout)["id"] == text


def test_a_terminal_shows_the_likeliest_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = {"many": tiny.task(labels=tuple("abcdefghij")), "few": tiny.task(labels=("x", "y"))}
    source = tiny.encoder()
    network = tiny.network("full", tasks, source)
    folder = MultiTaskModel(network, source.tokenizer, source.shape.longest).save(tmp_path / "m")
    shown = []
    for terminal in (False, True):
        stdin(monkeypatch, b"the old tree\n")
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        answer_file(folder, "-", None)
        shown.append(json.loads(capsys.readouterr().out))
    whole, short = (found["many"]["probabilities"] for found in shown)
    assert list(short) == [*sorted(whole, key=lambda label: -whole[label])[:5], "..."]
    assert short["..."] == pytest.approx(1 - sum([*short.values()][:5]), abs=1e-4)
    assert shown[0]["few"] == shown[1]["few"]


def test_what_came_before_a_bad_line_is_answered(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(monkeypatch, b"the old tree\na leaf\n\none more\n")
    with pytest.raises(UserError, match="standard input, line 3 is empty"):
        answer_file(folder, "-", None)
    found = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
    assert found == ["the old tree", "a leaf"]


def test_standard_input_to_a_table(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(monkeypatch, b"the old tree\none\ttwo\n")
    answer_file(folder, "-", tmp_path / "out.csv")
    header, *rows = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert header == "id,mood,mood.score,same,same.score,near"
    assert len(rows) == 2


def test_answers_come_before_all_texts_are_read(model: MultiTaskModel) -> None:
    read = 0

    def endless() -> Iterator[input_files.Row]:
        nonlocal read
        while True:
            read += 1
            yield input_files.Row(str(read), {"mood": "the old tree"})

    found = predict_file.answers(model, endless())
    assert [next(found)[0].label for _ in range(WINDOW + 1)] == [
        str(n + 1) for n in range(WINDOW + 1)
    ]
    assert read <= 2 * WINDOW


def test_a_line_is_answered_while_the_next_is_awaited(folder: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "bough", "predict", folder],
        stdin=-1,
        stdout=-1,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("the old tree", "one\ttwo", "a leaf"):  # stdin stays open
            process.stdin.write(f"{text}\n")
            assert json.loads(process.stdout.readline())["id"] == text
        process.stdin.write("no end")
        process.stdin.close()
        assert json.loads(process.stdout.readline())["id"] == "no end"
    assert process.returncode == 0


# --- what goes wrong -----------------------------------------------------------------------------


def test_a_stopped_command_leaves_nothing_half_written(folder: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the old tree is green\n" * 200_000, encoding="utf-8")
    command = [sys.executable, "-m", "bough", "predict", folder, "in.txt", "-o", "out.csv"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not list(tmp_path.glob(".out.csv*")) and time.monotonic() < until:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert os.listdir(tmp_path) == ["in.txt"]


def test_a_failure_leaves_the_old_file_and_no_parts(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.csv").write_text("old", encoding="utf-8")
    (tmp_path / "in.txt").write_text("the old tree\n" * 3, encoding="utf-8")

    def fail(*_: object) -> Iterator[Any]:
        yield input_files.Row("1", {}), {}
        raise RuntimeError("power cut")

    monkeypatch.setattr(predict_file, "answers", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.csv"}


def test_bad_places(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text\nthe old tree\n", encoding="utf-8")
    for out, message in (
        (tmp_path / "out.xls", "written as .csv or .jsonl"),
        (tmp_path / "no" / "out.csv", "there is no folder"),
        (file, "is the file to be answered"),
    ):
        with pytest.raises(UserError, match=message):
            answer_file(folder, str(file), out)
    file.write_text("sentence\nthe old tree\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"columns of no task; expected mood: text; same: one, two"):
        answer_file(folder, str(file), tmp_path / "out.csv")
    with pytest.raises(UserError, match=r"nothing.txt: cannot be read \(No such file"):
        answer_file(folder, str(tmp_path / "nothing.txt"), tmp_path / "out.csv")


@pytest.mark.parametrize("name", ["texts.txt", "texts.csv"])
def test_an_answer_that_is_no_number_stops_at_its_line(tmp_path: Path, name: str) -> None:
    broken = serving.model()
    named = broken.network.named_parameters()
    words = next(weight for name, weight in named if name.endswith("words.weight"))
    word = next(word for word in tiny.WORDS if word not in ("the", "old", "tree"))
    with torch.no_grad():
        words[broken.tokenizer.token_to_id(word)] = float("nan")
    head = "" if name.endswith(".txt") else "text\n"
    (tmp_path / name).write_text(f"{head}the old tree\nthe old {word}\n", encoding="utf-8")
    where = f"{tmp_path / name}, line {2 if not head else 3}"
    with pytest.raises(UserError) as caught:
        answer_file(broken.save(tmp_path / "model"), str(tmp_path / name), tmp_path / "out.csv")
    assert str(caught.value) == f"{where}: task 'mood' answers nan; train the model again"
    assert not (tmp_path / "out.csv").exists()
