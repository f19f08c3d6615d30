"""The run directory: whole at every moment, one writer at a time."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bough import files
from bough.errors import UserError
from bough.runs.run_dir import Onlooker, Run, Writer

# --- reading --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("tasks: {}\n")
    (tmp_path / "run" / "plan.txt").write_text("full\n")
    return tmp_path / "run"


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run directory"):
        Run.open(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"not a run directory \(it has no recipe.yaml\)"):
        Run.open(tmp_path)


def test_a_recipe_of_ones_own_is_no_run(tmp_path: Path) -> None:
    """Beside data, where `bough init` put it, it is neither resumed nor written over."""
    (tmp_path / "recipe.yaml").write_text("# mine\n")
    with pytest.raises(UserError, match=r"no run wrote its recipe.yaml.*bough train .*recipe.yaml"):
        Writer.resume(tmp_path)
    with pytest.raises(UserError, match=r"recipe.yaml, which a run would write over"):
        Writer.start(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.yaml"]


def test_what_is_not_there_yet(folder: Path) -> None:
    run = Run.open(folder)
    assert run.name == "run"
    assert not run.finished
    assert list(run.metrics()) == []
    with pytest.raises(UserError, match=r"scores.json: not there; the run is not finished"):
        _ = run.scores
    (folder / "cost.json").write_text('{"a": ')
    with pytest.raises(UserError, match=r"cost.json: not JSON"):
        _ = run.cost


def test_a_log_cut_short_is_read_as_far_as_it_goes(folder: Path) -> None:
    whole = b'{"step": 1}\n{"step": 2, "loss": {"a": 0.5}}\n'
    for end in range(len(whole) + 1):
        (folder / "metrics.jsonl").write_bytes(whole[:end])
        found = list(Run(folder).metrics())
        assert len(found) in (whole[:end].count(b"\n"), whole[:end].count(b"\n") + 1)
        assert all("step" in entry for entry in found)
    (folder / "metrics.jsonl").write_bytes(b'{"step": 1}\noh\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl, line 2: not JSON \('oh'\)"):
        list(Run(folder).metrics())


# --- writing --------------------------------------------------------------------------------------


def test_a_run_has_one_writer(folder: Path) -> None:
    writer = Writer.resume(folder)
    with pytest.raises(UserError, match="another process is writing this run"):
        Writer.resume(folder)
    with pytest.raises(UserError, match="another process is writing this run"):
        Writer.start(folder)
    writer.close()
    Writer.resume(folder).close()


def test_a_lock_goes_with_its_process(folder: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from bough.runs.run_dir import Writer\n"
        "writer = Writer.resume(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="another process"):
            Writer.resume(folder)
        holder.kill()
    Writer.resume(folder).close()


def test_a_directory_that_has_a_run_is_left_alone(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="which goes on with: bough train --resume"):
        Writer.start(folder)
    (folder / "scores.json").write_text("{}")
    with pytest.raises(UserError, match="has a run already, which is finished"):
        Writer.start(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file; give a directory"):
        Writer.start(tmp_path / "file")
    with pytest.raises(UserError, match="cannot be written"):
        Writer.start(tmp_path / "file" / "run")


def test_a_run_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    Writer.start(tmp_path / "a" / "run").close()
    assert not (tmp_path / "a" / "run").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("")
    Writer.start(tmp_path / "b").close()
    assert os.listdir(tmp_path / "b") == ["mine.txt"]


def test_what_a_kill_left_half_written_is_cleared(folder: Path) -> None:
    (folder / "checkpoint").mkdir()
    half = [
        folder / f".scores.json.77{files.PART}",
        folder / f"checkpoint/.state.pt.77{files.PART}",
    ]
    for file in half:
        file.write_bytes(b"half")
    Writer.resume(folder).close()
    assert not any(file.exists() for file in half)


def test_the_log_is_cut_back(folder: Path) -> None:
    writer = Writer.resume(folder)
    writer.log({"step": 1})
    size = writer.logged()
    writer.log({"step": 2})
    writer.close()
    writer = Writer.resume(folder)
    assert writer.logged() > size
    writer.rewind(size)
    writer.log({"step": 3})
    assert [entry["step"] for entry in Run(folder).metrics()] == [1, 3]
    writer.close()


# What has a memory of its own, and the step after which it is lost (of 8, 4 in an epoch).


@pytest.mark.parametrize("line", ["5", "null", "{}", "[]", '{"step": "x"}'])
def test_lines_that_are_no_entries(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n', encoding="utf-8")
    with pytest.raises(UserError, match="line 2: expected an entry of the log"):
        list(Run(tmp_path).metrics())


@pytest.mark.parametrize("content", ["[]", "5", "null", "{", "[" * 100_000])
def test_files_that_hold_something_else(tmp_path: Path, content: str) -> None:
    (tmp_path / "cost.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"cost.json: (is damaged|not JSON)"):
        _ = Run(tmp_path).cost


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_plan_that_is_gone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.txt").write_bytes(content)
    with pytest.raises(UserError, match=r"plan\.txt: is damaged"):
        _ = Run(tmp_path).plan


def test_a_line_that_ends_within_a_cell_stays_in_it(folder: Path) -> None:
    rows = [["1", "one\rtwo"], ["2", "three\nfour"]]
    Writer(folder).write_csv("predictions/a.csv", ["id", "text"], rows)
    with open(folder / "predictions" / "a.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["id", "text"], *rows]


def test_an_onlooker_leaves_no_trace(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    onlooker = Onlooker(folder)
    onlooker.write("scores.json", "{}")
    onlooker.write_json("cost.json", {})
    onlooker.write_csv("predictions/a.csv", ["a"], [])
    onlooker.log({"step": 1})
    onlooker.rewind(0)
    assert onlooker.logged() == 0
    onlooker.close()
    assert onlooker.run == Run(folder)
    assert sorted(folder.rglob("*")) == before
