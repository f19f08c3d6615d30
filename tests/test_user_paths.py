"""Paths that lead nowhere are said to, each with its reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.user_paths import check_name, place, read_bytes


def test_a_path_is_seen_from_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place("a/b.csv", Path("/data")) == Path("/data/a/b.csv")
    assert place("/x.csv", Path("/data")) == Path("/x.csv")
    assert place("~/x.csv", Path("/data")) == tmp_path / "x.csv"
    with pytest.raises(UserError, match="there is no such home folder; write the path out"):
        place("~nobody-of-this-name/x.csv", tmp_path)


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(b"a\n")
    assert read_bytes(tmp_path / "train.csv") == b"a\n"
    with pytest.raises(UserError, match="is a folder; name a file in it"):
        check_name(tmp_path)
    with pytest.raises(UserError, match=r"does not exist; did you mean 'train.csv'\?"):
        check_name(tmp_path / "trian.csv")
    with pytest.raises(UserError, match=r"does not exist \(nor does its folder .*none\)"):
        check_name(tmp_path / "none" / "train.csv")
    with pytest.raises(UserError, match="cannot be read: File name too long"):
        check_name(tmp_path / ("x" * 300))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is no regular file"):
        check_name(tmp_path / "pipe")
