"""One process at a time: another is refused at once, and a killed one holds nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.runs.lock import LockedError, locked
from tests.raising import raising


def take(path: Path, what: str = "run") -> None:
    with locked(path, what):
        pass


def test_what_is_held_is_told_from_other_trouble_by_its_kind(tmp_path: Path) -> None:
    with locked(tmp_path / ".lock"), pytest.raises(LockedError, match="another process"):
        take(tmp_path / ".lock")
    (tmp_path / "another process").touch()
    with pytest.raises(UserError, match="cannot be written") as refused:
        take(tmp_path / "another process" / "run" / ".lock")
    assert not isinstance(refused.value, LockedError)


HOLDER = """
import sys, time
from pathlib import Path
from bough.runs.lock import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(file)], stdout=-1) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match="another process is writing this survey"):
            take(file, "survey")
        holder.kill()
    with locked(file, "survey"):
        assert os.listdir(tmp_path) == [".lock"]
    take(file)


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than a file whose existence is the lock, and which a kill would leave behind."""
    import fcntl

    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOSYS, "Function not implemented")))
    with pytest.raises(UserError, match=r"cannot be written \(.*not implemented") as refused:
        take(tmp_path / "run" / ".lock")
    assert not isinstance(refused.value, LockedError)
