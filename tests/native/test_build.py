"""The library of kernels: built once, found again, refused where others could have put it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FIND = "from bough.native.build import library; print(library() is not None)"


def found(cache: Path, **environment: str) -> bool:
    """Whether a new process has kernels."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache), **environment}
    out = subprocess.run(
        [sys.executable, "-c", FIND], env=variables, capture_output=True, text=True, check=True
    )
    return out.stdout.strip() == "True"


def built(cache: Path) -> list[Path]:
    return sorted((cache / "bough" / "native").glob("*"))


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_it_is_built_once(tmp_path: Path) -> None:
    assert found(tmp_path)
    (library,) = built(tmp_path)
    made = library.stat().st_mtime_ns
    assert found(tmp_path)
    assert [file.stat().st_mtime_ns for file in built(tmp_path)] == [made]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_compiler_may_be_named_with_options(tmp_path: Path) -> None:
    assert found(tmp_path, CC="cc -O2")


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_where_nothing_can_be_written_there_is_none(tmp_path: Path) -> None:
    """As in a container whose file system is read-only: neither a cache nor a place for files that
    are soon gone."""
    file = tmp_path / "a file"
    file.touch()
    nowhere = {"XDG_CACHE_HOME": str(file), "HOME": str(file)}
    code = (
        "import tempfile, torch, bough.native.build\n"  # torch itself needs such a place
        "def none(): raise FileNotFoundError(2, 'No usable temporary directory found')\n"
        "tempfile.gettempdir = none\n" + FIND
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **nowhere}, capture_output=True, text=True
    )
    assert (out.returncode, out.stdout.strip()) == (0, "False"), out.stderr


def test_without_a_compiler_or_wish_there_is_none(tmp_path: Path) -> None:
    assert not found(tmp_path, BOUGH_NATIVE="0")
    assert not found(tmp_path, CC=str(tmp_path / "absent"))
    assert not found(tmp_path, CC="false")  # a compiler that fails
    assert not any(file.suffix == ".so" for file in built(tmp_path))


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    for name in (tmp_path / "bough" / "native", tmp_path / f"bough-{os.getuid()}"):
        name.mkdir(parents=True)
        name.chmod(0o777)
    assert not found(tmp_path)
