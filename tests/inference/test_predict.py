"""Answering files: order, forms, streaming, and the course's submission files."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from bough.cli.main import app
from bough.data import csv_reader, tables
from bough.errors import UserError
from bough.inference import inputs, predict
from bough.inference.base import WINDOW
from bough.inference.inputs import EVERYTHING, Choice
from bough.inference.predict import answer_file
from bough.inference.submission import SHEETS, submit
from bough.inference.torch_model import MultiTaskModel
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


def read_csv(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


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


def test_what_came_before_a_bad_line_is_answered(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(monkeypatch, b"the old tree\na leaf\n\none more\n")
    with pytest.raises(UserError, match="standard input, line 3 is empty"):
        answer_file(folder, "-", None)
    found = [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]
    assert found == ["the old tree", "a leaf"]


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

    def endless() -> Iterator[inputs.Row]:
        nonlocal read
        while True:
            read += 1
            yield str(read), {"mood": "the old tree"}

    found = predict.answers(model, endless())
    assert [next(found)[0] for _ in range(WINDOW + 1)] == [str(n + 1) for n in range(WINDOW + 1)]
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


@pytest.mark.parametrize("size", [1, 3, 10, 2**16])
def test_lines_are_put_together_whatever_is_read_at_a_time(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "READ", size)
    for text in (b"", b"a", b"a\n", b"\n", b"one\n\ntwo three\nfour", b"\r\n\x0cx\n"):
        lines = [line for line in inputs._as_written(io.BytesIO(text)) if line is not None]
        assert lines == list(io.BytesIO(text))


def test_a_pipe_with_a_name(folder: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "bough", "predict", folder, str(pipe)]
    with subprocess.Popen([*command, "-o", str(tmp_path / "out.csv")]) as process:
        pipe.write_text("the old tree\none leaf\n", encoding="utf-8")
    assert process.returncode == 0
    assert len((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 3


def test_a_row_with_two_texts_gets_both_answers(model: MultiTaskModel) -> None:
    row = {"mood": "the old tree", "same": ("one", "two"), "near": ("one", "two")}
    (found,) = predict.answers(model, [("a", row)])  # type: ignore[list-item]
    assert found[0] == "a"
    assert list(found[1]) == ["mood", "same", "near"]


def test_a_failure_leaves_the_old_file_and_no_parts(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.csv").write_text("old", encoding="utf-8")
    (tmp_path / "in.txt").write_text("the old tree\n" * 3, encoding="utf-8")

    def fail(*_: object) -> Iterator[Any]:
        yield "1", {}
        raise RuntimeError("power cut")

    monkeypatch.setattr(predict, "answers", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.csv"}


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "tasks", "message"),
    [
        (b"", (), r"in.txt: there is no text in it"),
        (b"a\n\nb\n", (), r"in.txt, line 2 is empty"),
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


def test_a_blank_line_of_a_table_with_one_column_is_a_row(folder: str, tmp_path: Path) -> None:
    """Else the answers below it would stand one line too high."""
    file = tmp_path / "in.csv"
    file.write_text("text\nthe old tree\n\none leaf\n\n\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"in.csv line 3, column 'text': the text is empty") as said:
        answer_file(folder, str(file), tmp_path / "out.csv")
    assert str(said.value).endswith("; mend the file")
    assert not (tmp_path / "out.csv").exists()


# --- large tables --------------------------------------------------------------------------------


def test_a_table_is_never_held_whole(model: MultiTaskModel, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    with file.open("w", encoding="utf-8") as out:
        out.write("id,text\n")
        out.writelines(f"r{n},{'leaf ' * 60}{n}\n" for n in range(50_000))
    tracemalloc.start()
    found = inputs.table(model, str(file), EVERYTHING)
    last = deque(found.rows, maxlen=1).pop()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.total == 50_000
    assert last == ("r49999", {"mood": f"{'leaf ' * 60}49999"})
    assert peak < file.stat().st_size / 3


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_parts_of_a_table_are_the_table(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"in{ending}"
    told = [{"id": f"r{n}", "text": f"leaf {n}", "other": "x"} for n in range(11)]
    if ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(told), file)
    elif ending == ".jsonl":
        file.write_text("\n\n".join(map(json.dumps, told)) + "\nnone\n", encoding="utf-8")
    else:
        between = {".csv": ",", ".tsv": "\t"}[ending]
        lines = [between.join(row.values()) for row in told]
        lines[5] = f'r5{between}"leaf\n5"{between}x'  # over two lines
        text = "\n".join([between.join(told[0]), *lines, "", "broken", ""])
        file.write_text(text, encoding="utf-8")
    wanted = tables.Wanted(("text", "missing"), "", False)
    whole = tables.open_table(str(file), wanted, tmp_path, "")
    monkeypatch.setattr(tables, "PART", 3)
    monkeypatch.setattr(csv_reader, "LOOK", 2)  # lines are forgotten soon
    assert len(list(tables.parts(file, wanted))) == 4
    assert tables.open_table(str(file), wanted, tmp_path, "") == whole
    assert whole.columns.keys() == {"text", "id"}
    assert len(whole.lines) == 11
    assert len(whole.broken) == (ending != ".parquet")


def test_a_parquet_file_is_never_held_whole(tmp_path: Path) -> None:
    file = tmp_path / "in.parquet"
    told = pyarrow.table({"text": [f"{'leaf ' * 100}{n * 7919}" for n in range(100_000)]})
    pyarrow.parquet.write_table(  # all in one group of rows
        told, file, row_group_size=len(told), compression="none", use_dictionary=False
    )
    code = (
        "import sys, pyarrow; from pathlib import Path; from bough.data import tables\n"
        "wanted = tables.Wanted(('text',), '', False)\n"
        "assert sum(len(p.lines) for p in tables.parts(Path(sys.argv[1]), wanted)) == 100_000\n"
        "print(pyarrow.default_memory_pool().max_memory())"
    )
    command = [sys.executable, "-c", code, str(file)]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert peak < file.stat().st_size / 4


def test_what_was_assumed_of_a_table_is_said(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.tsv"
    file.write_text('text\tlabel\n"the old\tgood\nis green"\tbad\n', encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv")
    assert "1 row holds quotes that quote no field" in capsys.readouterr().err


def test_a_task_asked_for_twice_answers_once(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text\nthe old tree\n", encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv", Choice(("mood", "mood")))
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith("id,mood,mood.score\n")


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
    with pytest.raises(UserError, match="no line of it can be read"):
        answer_file(folder, str(lines), tmp_path / "none.csv", Choice(skip=True))
    assert not (tmp_path / "none.csv").exists()


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
        (found,) = read_jsonl(out)
        del found["id"]
        assert serving.same(found, model.predict(asked or ("the old tree", "a leaf")))
    answer_file(folder, str(file), out, Choice(("near",), ("review", "reply")))
    assert read_jsonl(out)[0].keys() == {"id", "near"}
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


def test_texts_that_were_cut_are_counted(
    model: MultiTaskModel, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "tree " * 2 * model.longest
    (tmp_path / "in.txt").write_text(f"a leaf\n{long}\n{long}\tone\n", encoding="utf-8")
    answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.jsonl")
    assert f"cut after {model.longest} tokens: 2 of them" in capsys.readouterr().err
    found = read_jsonl(tmp_path / "out.jsonl")
    assert ["cut" in row["mood"] for row in found[:2]] == [False, True]


def test_a_text_is_no_file(folder: str) -> None:
    found = CliRunner().invoke(app, ["predict", folder, "A fine film."])
    assert isinstance(found.exception, UserError)
    assert str(found.exception).startswith("'A fine film.': no such file; to answer a text itself:")


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


def test_what_was_written_is_said(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text\nthe old tree\none leaf\n\n", encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv")
    assert f"2 rows answered: {tmp_path / 'out.csv'}" in capsys.readouterr().err


def test_columns_without_a_name_do_not_matter(folder: str, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("text,,\nthe old tree,1,2\n", encoding="utf-8")
    answer_file(folder, str(file), tmp_path / "out.csv")
    assert len((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()) == 2


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


# --- the course's files --------------------------------------------------------------------------


def course_run(folder: Path, data: Path, **changes: Any) -> Path:
    """A run with the course's three tasks, as far as answering needs one."""
    tasks = {
        "sst": {"text": "sentence", "label": "sentiment", "labels": list("01234")},
        "quora": {"text": ("sentence1", "sentence2"), "label": "is_duplicate",
                  "labels": ["0", "1"]},
        "sts": {"text": ("sentence1", "sentence2"), "label": "similarity", "kind": "regress",
                "labels": None, "range": (0, 5)},
    } | changes  # fmt: skip
    made = {name: tiny.task(**settings) for name, settings in tasks.items()}
    source = tiny.encoder(layers=2)
    model = MultiTaskModel(tiny.network("full", made, source, stir=0.3), source.tokenizer, 40)
    model.save(folder / "model")
    told = {n: t.model_dump(mode="json", exclude_none=True) for n, t in made.items()}
    (folder / "recipe.yaml").write_text(
        json.dumps({"encoder": "tiny", "data": str(data), "tasks": told}), encoding="utf-8"
    )
    return folder


def course_data(folder: Path) -> Path:
    folder.mkdir()
    (folder / "ids-sst-test-student.csv").write_text(
        "\tid\tsentence\n0\tB7 \t the old tree\n1\td17\t one root\n", encoding="utf-8"
    )
    for name in ("quora", "sts"):
        (folder / f"{name}-test-student.csv").write_text(
            "\tid\tsentence1\tsentence2\n5\tx1\tone\ttwo\n3\tx0\tthe tree\ta leaf\n9\tx2\tin\ton\n",
            encoding="utf-8",
        )
    return folder


def test_course_files_have_the_courses_form(tmp_path: Path) -> None:
    run = course_run(tmp_path / "run", course_data(tmp_path / "data"))
    said = list(submit(run, None, tmp_path / "out"))
    assert [line.split(": ")[1].split(" from")[0] for line in said] == ["2 rows"] + ["3 rows"] * 2
    found = {s.out: (tmp_path / "out" / s.out).read_text(encoding="utf-8") for s in SHEETS}
    header, one, two, end = found["sst-test-output.csv"].split("\n")
    assert header == "id \t Predicted_Sentiment "
    assert (one.split(" , ")[0], two.split(" , ")[0], end) == ("b7", "d17", "")
    assert one.split(" , ")[1] in [f"{n} " for n in range(5)]
    header, *lines, end = found["para-test-output.csv"].split("\n")
    assert header == "id \t Predicted_Is_Paraphrase "
    assert [line.split(" , ")[0] for line in lines] == ["x1", "x0", "x2"]
    assert {line.split(" , ")[1] for line in lines} <= {"0.0 ", "1.0 "}
    header, *lines, end = found["sts-test-output.csv"].split("\n")
    assert header == "id \t Predicted_Similiary "
    assert all(line.endswith(" ") and 0 <= float(line.split(" , ")[1]) <= 5 for line in lines)


def test_course_labels_by_name_become_numbers(tmp_path: Path) -> None:
    named = {"text": ("sentence1", "sentence2"), "labels": ["different", "same"]}
    run = course_run(tmp_path / "run", course_data(tmp_path / "data"), quora=named)
    list(submit(run, None, tmp_path / "out"))
    lines = (tmp_path / "out" / "para-test-output.csv").read_text(encoding="utf-8").splitlines()
    assert {line.split(" , ")[1] for line in lines[1:]} <= {"0.0 ", "1.0 "}


def test_a_missing_test_file_is_said(tmp_path: Path) -> None:
    data = course_data(tmp_path / "data")
    (data / "quora-test-student.csv").unlink()
    run = course_run(tmp_path / "run", data)
    found = CliRunner().invoke(
        app, ["predict", str(run), "--format", "cs224n", "-o", str(tmp_path / "out")]
    )
    assert found.exit_code == 0, found.output
    assert "para-test-output.csv: not written, there is no" in found.output
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "sst-test-output.csv", "sts-test-output.csv",
    }  # fmt: skip


def test_a_recipe_beside_a_model_is_not_the_models(tmp_path: Path) -> None:
    data = course_data(tmp_path / "data")
    run = course_run(tmp_path / "run", data)
    project = tmp_path / "project"
    (run / "model").rename(tmp_path / "saved")
    project.mkdir()
    (tmp_path / "saved").rename(project / "saved")
    (project / "recipe.yaml").write_text("tasks: ${NOT_SET}", encoding="utf-8")
    with pytest.raises(UserError, match="is no run with a recipe"):
        list(submit(project / "saved", None, tmp_path / "out"))
    assert len(list(submit(project / "saved", str(data), tmp_path / "out"))) == 3


def test_course_mistakes(tmp_path: Path, folder: str) -> None:
    data = course_data(tmp_path / "data")
    run = course_run(tmp_path / "run", data)
    with pytest.raises(UserError, match="give a folder for them with -o"):
        list(submit(run, None, None))
    with pytest.raises(UserError, match="no such folder"):
        list(submit(run, str(tmp_path / "nowhere"), tmp_path / "out"))
    with pytest.raises(UserError, match="is no run with a recipe"):
        list(submit(folder, None, tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no test file of the course"):
        list(submit(run, str(tmp_path / "empty"), tmp_path / "out"))
    odd = course_run(tmp_path / "odd", data, sst={"text": "sentence", "labels": ["0", "1"]})
    with pytest.raises(UserError, match="task 'sst' is not the course's: 5 classes for one text"):
        list(submit(odd, None, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


_DATA = Path(os.environ.get("BOUGH_DATA", ""))


@pytest.mark.real
@pytest.mark.skipif(
    not (os.environ.get("BOUGH_DATA") and _DATA.is_dir()),
    reason="BOUGH_DATA names no folder with the CS224N files",
)
def test_course_files_for_the_real_test_sets(tmp_path: Path) -> None:
    run = course_run(tmp_path / "run", _DATA)
    list(submit(run, None, tmp_path / "out"))
    for sheet, size in zip(SHEETS, (2210, None, 1725), strict=True):
        if not (_DATA / sheet.test).is_file():
            continue
        found = (tmp_path / "out" / sheet.out).read_text(encoding="utf-8").split("\n")
        assert found[0] + "\n" == sheet.header
        assert found[-1] == ""
        # The ids as the course's own reader finds them.
        with open(_DATA / sheet.test, encoding="utf-8", newline="") as file:
            truth = [row["id"].lower().strip() for row in csv.DictReader(file, delimiter="\t")]
        ids = [line.split(" , ")[0] for line in found[1:-1]]
        assert ids == truth
        assert size is None or len(ids) == size
