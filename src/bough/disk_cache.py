"""The disk cache: arrays by key, in a folder of bounded size.

It keeps what takes long to make and is shared by runs: prepared rows, and states of fixed weights.
An entry is `<key>-<number>.npy` for each array, then `<key>.json`, which says what they are, with
their checksums, and comes last: an entry is whole or absent, and a damaged one is removed and
counted. The entries used longest ago are the first to go.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import DTypeLike, NDArray

from bough.errors import UserError

Array = NDArray[Any]
Entry = Sequence[tuple[dict[str, Any], Array]]  # each array with what it is
FORM = 2  # of an entry; one of another form is none
ORPHAN = 3600  # seconds after which a file that belongs to no entry was left by a killed run
FRESH = 2.0  # seconds in which a file may change once more without another time
FILE = re.compile(r"\.?(?P<key>[0-9a-f]{32})\b.*\.(json|npy|part|lock)")  # users own none


def cache_folder() -> Path:
    """Where it is: BOUGH_CACHE, or in the user's cache folder."""
    given = os.environ.get("BOUGH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given).expanduser() if given else Path(base).expanduser() / "bough" / "states"


def disk_limit() -> int:
    """The most that it may take, in bytes: BOUGH_CACHE_GB, by default 10."""
    text = os.environ.get("BOUGH_CACHE_GB", "10")
    try:
        most = float(text)
    except ValueError:
        most = math.nan
    if not 0 <= most < math.inf:
        raise UserError(
            f"BOUGH_CACHE_GB is {text!r}; expected a number of gigabytes from 0 on, as in 10"
        )
    return int(most * 1e9)


class DiskCache:
    """The arrays in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.damaged = 0  # entries that were found so, and removed

    def read(self, key: str, mapped: bool = True) -> list[tuple[dict[str, Any], Array]] | None:
        """An entry's arrays, each with what it is; None if there is none."""
        index = self.folder / f"{key}.json"
        try:
            content = json.loads(index.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or content.get("form") != FORM:
                return None
            entry = [
                (what, np.load(self._file(key, number), mmap_mode="c" if mapped else None))
                for number, what in enumerate(content["arrays"])
            ]
            if content["crc32"] != _checksum(entry):
                raise ValueError("not what was written")
            with suppress(OSError):  # it is there to be read, if not to be changed
                os.utime(index)
        except OSError:  # absent
            return None
        except Exception:  # whatever the readers stumble over first, in bytes that are none
            with suppress(OSError):
                index.unlink()
            self.damaged += 1
            return None
        return entry

    def new_array(
        self, key: str, number: int, shape: tuple[int, ...], kind: DTypeLike = np.float32
    ) -> Array:
        """A new entry's array, mapped, to be filled in place."""
        file = self._aside(self._file(key, number))
        rows: Array = np.lib.format.open_memmap(file, "w+", np.dtype(kind), shape)
        # The blocks are taken now: where the disk is full, filling a mapped page is the end.
        if hasattr(os, "posix_fallocate"):
            with open(file, "r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        elif shutil.disk_usage(self.folder).free < rows.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rows

    def growing(self, key: str, number: int, kind: DTypeLike) -> GrowingArray:
        """A new entry's array, whose end is not known yet."""
        return GrowingArray(self._aside(self._file(key, number)), np.dtype(kind))

    def save(self, key: str, entry: Entry, filled: bool) -> None:
        """The arrays with what they are; `filled`: their files are there, to be put in place."""
        for number, (_, rows) in enumerate(entry):
            file = self._file(key, number)
            with open(self._aside(file), "r+b" if filled else "wb") as opened:
                if not filled:
                    np.save(opened, rows)
                    opened.flush()
                os.fsync(opened.fileno())
            os.replace(self._aside(file), file)
        index = self.folder / f"{key}.json"
        arrays = [what for what, _ in entry]
        content = {"form": FORM, "arrays": arrays, "crc32": _checksum(entry)}
        self._aside(index).write_text(json.dumps(content), encoding="utf-8")
        os.replace(self._aside(index), index)

    @contextmanager
    def made_by_one(self, key: str) -> Iterator[None]:
        """Who else would make this entry waits meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f".{key}.lock"):
            yield

    def file_digest(self, path: Path) -> str:
        """SHA-256 of a file's content; read again only if its size or its time has changed."""
        stat = path.stat()
        now = {"size": stat.st_size, "changed": stat.st_mtime_ns, "node": stat.st_ino}
        key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
        before = self.read(key)
        if before and now.items() <= before[0][0].items():
            return str(before[0][0]["sha256"])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if time.time() - stat.st_mtime > FRESH:
            with suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                self.save(key, [({**now, "sha256": digest}, np.zeros(0))], filled=False)
        return digest

    def clear_unfinished(self, key: str) -> None:
        """Remove what this process has begun to write and will not end."""
        for file in self.folder.glob(f".{key}*.{os.getpid()}.part"):
            file.unlink(missing_ok=True)

    def make_room(self, size: int) -> None:
        """Let go of what killed runs left behind, and of the entries used longest ago."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stats: dict[Path, os.stat_result] = {}
        keys: dict[Path, str] = {}
        for file in self.folder.iterdir():
            name = FILE.fullmatch(file.name)
            with suppress(FileNotFoundError):  # another run has let go of it
                if name is not None:
                    stats[file], keys[file] = file.stat(), name["key"]
        used = {keys[f]: stat.st_mtime for f, stat in stats.items() if f.suffix == ".json"}
        taken = sum(stat.st_size for stat in stats.values())

        def remove(files: list[Path]) -> None:
            nonlocal taken
            for file in files:
                file.unlink(missing_ok=True)
                taken -= stats[file].st_size

        loose = [f for f in stats if f.suffix in (".part", ".lock") or keys[f] not in used]
        remove([f for f in loose if stats[f].st_mtime < time.time() - ORPHAN])
        for key in sorted(used, key=used.__getitem__):
            if taken + size <= disk_limit():
                return
            entry = [f for f in stats if keys[f] == key and f.suffix in (".json", ".npy")]
            remove(sorted(entry, key=lambda f: f.suffix != ".json"))  # the index first

    def _file(self, key: str, number: int) -> Path:
        return self.folder / f"{key}-{number}.npy"

    def _aside(self, file: Path) -> Path:
        return file.with_name(f".{file.name}.{os.getpid()}.part")


class GrowingArray:
    """An array of one dimension that is written to its file piece by piece."""

    def __init__(self, file: Path, kind: np.dtype[Any]):
        self.kind = kind
        self.size = 0
        self._path = file
        self._file = file.open("wb")
        self._file.write(self._header())

    def add(self, part: Array) -> None:
        self._file.write(np.ascontiguousarray(part, self.kind).data)
        self.size += part.size

    def finish(self) -> Array:
        """All of it, mapped."""
        self._file.seek(0)
        self._file.write(self._header())
        self._file.close()
        whole: Array = np.load(self._path, mmap_mode="c")
        return whole

    def close(self) -> None:
        self._file.close()

    def _header(self) -> bytes:
        """Of the same length whatever the size is, up to 20 digits."""
        header = BytesIO()
        shape = {"descr": self.kind.str, "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(header, shape)
        return header.getvalue()


def _checksum(entry: Entry) -> int:
    """Of all that an entry is: what its arrays are, their type, and every number in them."""
    total = 0
    for what, rows in entry:
        kind = [json.loads(json.dumps(what)), str(rows.dtype), rows.flags["C_CONTIGUOUS"]]
        total = zlib.crc32(json.dumps(kind).encode(), total)
        total = zlib.crc32(np.ascontiguousarray(rows).data, total)
    return total
