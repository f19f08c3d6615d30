"""A folder that is exported into is complete, or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.export.folder import new_folder


def test_it_takes_its_name_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    before = os.umask(0o027)
    try:
        with new_folder(out) as part:
            (part / "file").write_text("x")
            assert not out.exists()
    finally:
        os.umask(before)
    assert (out / "file").read_text() == "x"
    assert out.stat().st_mode & 0o777 == 0o750
    assert list(out.parent.iterdir()) == [out]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), new_folder(tmp_path / "out") as part:
        (part / "there").rename(part / "gone")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with new_folder(tmp_path / "empty") as part:
        (part / "file").write_text("x")
    for taken in ("empty", "empty/file"):
        with pytest.raises(UserError, match="already there"), new_folder(tmp_path / taken):
            pass
    assert (tmp_path / "empty" / "file").read_text() == "x"
