"""What a run goes on with is what it began with, or is said to be another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bough.data.checked_rows import digest
from bough.data.dataset import Data
from bough.errors import UserError
from bough.runs.run_dir import Run
from bough.runs.unchanged import changed_rows, check
from tests import tiny


def data(*texts: str) -> Data:
    rows = tiny.rows([(text,) for text in texts], [0] * len(texts))
    return Data({"a": tiny.task()}, {"a": {"train": rows}})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    before = data("one", "two").digests()
    facts = {
        "data": before, "threads": 2, "kernels": "bough's", "tokenizer": "x", "weights": "y",
        "teachers": {"a": "t"},
    }  # fmt: skip
    (tmp_path / "environment.json").write_text(json.dumps(facts))
    return Run(tmp_path)


def said(
    run: Run,
    rows: Data,
    threads: int = 2,
    kernels: str = "bough's",
    processes: int = 1,
    teachers: Mapping[str, str] | None = None,
    **parts: str,
) -> list[str]:
    out: list[str] = []
    here = {"threads": threads, "kernels": kernels}
    check(
        run, rows, "minilm", parts, out.append, here=here, processes=processes,
        teachers=teachers or {},
    )  # fmt: skip
    return out


def test_nothing_is_said_of_what_is_the_same(run: Run) -> None:
    assert said(run, data("one", "two"), tokenizer="x", weights="y") == []
    assert list(changed_rows(run, data("one", "two"))) == []


def test_other_answers_of_a_teacher_are_refused(run: Run) -> None:
    assert said(run, data("one", "two"), teachers={"a": "t"}) == []
    with pytest.raises(UserError, match="the teachers of task 'a' answer otherwise"):
        said(run, data("one", "two"), teachers={"a": "u"})


def test_other_rows_and_another_tokenizer_are_refused(run: Run) -> None:
    assert digest(data("one", "two").rows["a"]["train"])
    assert list(changed_rows(run, data("one", "three"))) == [("a", "train", "memory")]
    with pytest.raises(UserError, match=r"the train rows of task 'a' \(memory\) have changed"):
        said(run, data("one", "three"))
    with pytest.raises(UserError, match="the tokenizer of encoder 'minilm' is another"):
        said(run, data("one", "two"), tokenizer="z")


def test_other_weights_threads_kernels_and_processes_are_told(run: Run) -> None:
    (weights,) = said(run, data("one", "two"), weights="z")
    assert "goes on with its own, from the checkpoint" in weights
    (threads,) = said(run, data("one", "two"), threads=1)
    assert "began with 2 threads and goes on with 1 threads" in threads
    (kernels,) = said(run, data("one", "two"), kernels="torch's")
    assert "began with bough's kernels and goes on with torch's kernels" in kernels
    (processes,) = said(run, data("one", "two"), processes=4)
    assert "processes: the run began with 1 and goes on with 4" in processes
