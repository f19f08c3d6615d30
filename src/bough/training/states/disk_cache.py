"""The disk cache of states: arrays by key, in a folder of bounded size.

An entry is `<key>-<number>.npy` for each array, then `<key>.json`, which says what they are, with
their checksums, and comes last: an entry is whole or absent, and a damaged one is removed and
counted. The entries used longest ago are the first to go.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bough.errors import UserError

ORPHAN = 3600  # seconds after which a file that belongs to no entry was left by a killed run
FILE = re.compile(r"\.?(?P<key>[0-9a-f]{32})\b.*\.(json|npy|part)")  # a user's own are let alone


def cache_folder() -> Path:
    """Where states are kept: BOUGH_CACHE, or the user's cache folder."""
    given = os.environ.get("BOUGH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given).expanduser() if given else Path(base).expanduser() / "bough" / "states"


def disk_limit() -> int:
    """The most that kept states may take on disk, in bytes: BOUGH_CACHE_GB, by default 10."""
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


class StateCache:
    """The arrays in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.damaged = 0  # entries that were found so, and removed

    def read(
        self, key: str, shape: tuple[int, int] | None, mapped: bool
    ) -> list[tuple[dict[str, Any], Tensor]] | None:
        """An entry's arrays, each with what it is; None if there are none, or of other shape."""
        index = self.folder / f"{key}.json"
        out = []
        try:
            content = json.loads(index.read_text(encoding="utf-8"))
            if isinstance(content, list):  # of a bough that wrote no checksums
                return None
            for number, what in enumerate(content["arrays"]):
                rows = np.load(self._file(key, number), mmap_mode="c" if mapped else None)
                if shape is not None and rows.shape != shape:
                    return None
                out.append((what, torch.from_numpy(rows)))
            if content["crc32"] != _checksum(out):
                raise ValueError("not what was written")
            os.utime(index)
        except OSError:  # absent
            return None
        except Exception:  # whatever the readers stumble over first, in bytes that are none
            index.unlink(missing_ok=True)
            self.damaged += 1
            return None
        return out

    def new_array(self, key: str, number: int, shape: tuple[int, int]) -> Tensor:
        """A new entry's array, mapped, to be filled in place."""
        file = self._aside(self._file(key, number))
        rows = np.lib.format.open_memmap(file, "w+", np.dtype(np.float32), shape)
        # The blocks are taken now: where the disk is full, filling a mapped page is the end.
        if hasattr(os, "posix_fallocate"):
            with open(file, "r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        elif shutil.disk_usage(self.folder).free < rows.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return torch.from_numpy(rows)

    def save(self, key: str, entry: Sequence[tuple[dict[str, Any], Tensor]], filled: bool) -> None:
        """The arrays with what they are; `filled`: into those that `new_array` made."""
        for number, (_, rows) in enumerate(entry):
            file = self._file(key, number)
            with open(self._aside(file), "r+b" if filled else "wb") as opened:
                if not filled:
                    np.save(opened, rows.numpy())
                    opened.flush()
                os.fsync(opened.fileno())
            os.replace(self._aside(file), file)
        index = self.folder / f"{key}.json"
        content = {"arrays": [what for what, _ in entry], "crc32": _checksum(entry)}
        self._aside(index).write_text(json.dumps(content), encoding="utf-8")
        os.replace(self._aside(index), index)

    def clear_unfinished(self, key: str) -> None:
        """Remove what this process has begun to write and will not end."""
        for file in self.folder.glob(f".{key}*.{os.getpid()}.part"):
            file.unlink(missing_ok=True)

    def make_room(self, size: int) -> None:
        """Let go of what killed runs left behind, and of the states used longest ago."""
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

        loose = [f for f in stats if f.suffix == ".part" or keys[f] not in used]
        remove([f for f in loose if stats[f].st_mtime < time.time() - ORPHAN])
        for key in sorted(used, key=used.__getitem__):
            if taken + size <= disk_limit():
                return
            entry = [f for f in stats if keys[f] == key and f.suffix != ".part"]
            remove(sorted(entry, key=lambda f: f.suffix != ".json"))  # the index first

    def _file(self, key: str, number: int) -> Path:
        return self.folder / f"{key}-{number}.npy"

    def _aside(self, file: Path) -> Path:
        return file.with_name(f".{file.name}.{os.getpid()}.part")


def _checksum(entry: Sequence[tuple[dict[str, Any], Tensor]]) -> int:
    """Of all that an entry is: what its arrays are, their type, and every number in them."""
    total = 0
    for what, rows in entry:
        kind = [json.loads(json.dumps(what)), str(rows.dtype), rows.is_contiguous()]
        total = zlib.crc32(json.dumps(kind).encode(), total)
        total = zlib.crc32(rows.contiguous().numpy().data, total)
    return total
