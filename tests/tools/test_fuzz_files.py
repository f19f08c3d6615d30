"""The fuzz of files: a small share of it, and that it would notice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bough.errors import UserError
from tools import fuzz_files
from tools.fuzz_files import Kind, Outcome

SHARE = 5  # cases for each part of a kind's share


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    return {kind.name: kind for kind in fuzz_files.kinds(tmp_path_factory.mktemp("fuzz"))}


NAMES = [
    "recipes", "tables", "JSON lines", "encoders", "models", "tokenizers", "runs", "predictions",
]  # fmt: skip


def test_every_kind_is_tried(known: dict[str, Kind]) -> None:
    assert list(known) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_file_is_read_or_refused_in_one_sentence(
    name: str, known: dict[str, Kind]
) -> None:
    kind = known[name]
    kind.use()  # as long as nothing is changed
    outcomes = fuzz_files.run(kind, range(SHARE * kind.share), seed=1)
    assert {outcome.what for outcome in outcomes} <= {"read", "refused"}, outcomes
    assert any(outcome.what == "refused" for outcome in outcomes)


def fails() -> None:
    raise KeyError("x")


def refuses() -> None:
    raise UserError("one sentence")


def hoards() -> None:
    bytearray(3 * 2**30)


def dies() -> None:
    os._exit(3)


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (time.time, "read"),
        (refuses, "refused"),
        (fails, "traceback"),
        (hoards, "too much memory"),
        (dies, "process ended"),
    ],
)
def test_faults_are_noticed(use: Callable[[], object], what: str, tmp_path: Path) -> None:
    """Each in its case, and the file is whole again after it."""
    file = tmp_path / "file.json"
    file.write_text('{"a": [1, 2]}')
    found = fuzz_files.run(Kind("own", (file,), use, 1), range(3), seed=0)
    assert [outcome.what for outcome in found] == [what] * 3
    assert file.read_text() == '{"a": [1, 2]}'


def test_a_sentence_of_two_lines_is_a_fault() -> None:
    def use() -> None:
        raise UserError("one\ntwo")

    assert fuzz_files.outcome_of(use) == Outcome("traceback", "2 lines: one\ntwo")


def test_the_same_number_makes_the_same_change(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text('{"a": [1, 2], "b": {"c": "d"}}')
    seen: list[bytes] = []
    kind = Kind("own", (file,), lambda: seen.append(file.read_bytes()), 1)
    for number in (*range(20), *range(20)):
        fuzz_files.run_case(kind, number, 0)
    assert seen[:20] == seen[20:]
    assert len(set(seen)) > 10
