"""Files that are either the old or the new one, never half of it: write aside, sync, rename."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

PART = ".part"  # how the names of files end that are not complete yet


class DiskFullError(OSError):
    """No room left; what was there before is still there."""

    def __str__(self) -> str:
        return str(self.strerror)


Content = str | bytes | Callable[[IO[bytes]], object]
"""What is written: itself, or what writes it, for what would not be held in memory twice."""


def write_atomically(path: Path, content: Content) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    size = 0
    try:
        with open(aside, "wb") as file:
            try:
                if callable(content):
                    content(file)
                else:
                    file.write(content.encode() if isinstance(content, str) else content)
                size = file.tell()
                file.flush()
            except RuntimeError:
                # torch has words of its own for a full disk; if it is that, this fails, too.
                size = file.tell()
                file.write(bytes(2**20))
                raise
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        raise told(error, path, size) from None
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file written bit by bit that takes its place at the end, if nothing went wrong."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    size = 0
    try:
        with open(aside, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            size = file.tell()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        raise told(error, path, size) from None
    finally:
        aside.unlink(missing_ok=True)


def told(error: OSError, path: Path, size: int) -> OSError:
    """The same error; a full disk in a sentence that says what happened to the file."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error
    return DiskFullError(
        error.errno,
        f"no space left to write {path} ({size / 1e6:,.1f} MB); what was there before is kept",
    )


def clear_parts(folder: Path) -> None:
    """Remove what a killed process had begun to write; only while no other can be writing."""
    for part in folder.glob(f".*{PART}"):
        part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system can."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
