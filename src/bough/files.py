"""Files that are either the old or the new one, never half of it: write aside, sync, rename."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, TextIO

if TYPE_CHECKING:
    from _csv import Writer

PART = ".part"  # how the names of files end that are not complete yet


class DiskFullError(OSError):
    """No room left; what was there before is still there."""

    def __str__(self) -> str:
        return str(self.strerror)


Content = str | bytes | Callable[[IO[bytes]], object]
"""What is written: itself, or what writes it, for what would not be held in memory twice."""


def write_atomically(path: Path, content: Content) -> None:
    with _replacing_bytes(path) as file:
        if not callable(content):
            file.write(content.encode() if isinstance(content, str) else content)
            return
        try:
            content(file)
        except RuntimeError:
            # torch has words of its own for a full disk; if it is that, this fails, too.
            file.write(bytes(2**20))
            raise


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file written bit by bit that takes its place at the end, if nothing went wrong."""
    with _replacing_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield text
        finally:
            text.detach()  # all is handed on, and the file beneath stays open


class _BareEnds:
    """What `csv.writer` writes its lines to: the ends it is told of become `\\n`."""

    def __init__(self, file: TextIO):
        self.file = file

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


def csv_writer(file: TextIO) -> Writer:
    """Writes lines of CSV that end in `\\n`, and a cell with any end of a line in quotes."""
    # Python 3.11 quotes only the ends that it writes itself: told of \n, it leaves a \r bare.
    return csv.writer(_BareEnds(file), lineterminator="\r\n")


@contextmanager
def _replacing_bytes(path: Path) -> Iterator[BinaryIO]:
    aside = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    size = 0
    try:
        with open(aside, "wb") as file:
            try:
                yield file
                file.flush()
            finally:
                size = file.tell()
            os.fsync(file.fileno())
        os.replace(aside, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise explained(error, path, size) from None
    finally:
        aside.unlink(missing_ok=True)


def explained(error: OSError, path: Path, size: int) -> OSError:
    """The same error; a full disk in a sentence that says what happened to the file."""
    if error.errno == errno.EFBIG:
        return OSError(
            error.errno,
            f"larger ({size / 1e6:,.1f} MB) than a file may be here (ulimit -f); what was there "
            "before is kept",
            str(path),
        )
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error
    return DiskFullError(
        error.errno,
        f"no space left to write {path} ({size / 1e6:,.1f} MB); what was there before is kept",
    )


def sha256(paths: Iterable[Path]) -> str:
    """Of the files' contents, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def clear_parts(folder: Path) -> None:
    """Remove what a killed process had begun to write; only while no other can be writing."""
    for part in folder.glob(f".*{PART}"):
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
