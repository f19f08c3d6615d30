"""The disk cache: whole or absent, within its limit, and nobody else's files touched."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from bough.disk_cache import ORPHAN, DiskCache, cache_folder, disk_limit
from bough.errors import UserError

KEYS = [letter * 32 for letter in "abc"]
ROWS = np.arange(500, dtype=np.float32).reshape(50, 10)  # 2,000 bytes


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path)


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
def test_an_entry_comes_back(filled: bool, mapped: bool, cache: DiskCache) -> None:
    arrays = [ROWS, -ROWS]
    if filled:
        arrays = [cache.new_array(KEYS[0], number, (50, 10)) for number in range(2)]
        arrays[0][:], arrays[1][:] = ROWS, -ROWS
    assert cache.read(KEYS[0], mapped) is None
    cache.save(KEYS[0], [({"name": "x"}, arrays[0]), ({"name": "y"}, arrays[1])], filled)
    entry = cache.read(KEYS[0], mapped)
    assert entry is not None
    assert [what for what, _ in entry] == [{"name": "x"}, {"name": "y"}]
    for (_, rows), wanted in zip(entry, (ROWS, -ROWS), strict=True):
        assert np.array_equal(rows, wanted)
    assert not list(cache.folder.glob("*.part"))


def test_what_is_begun_and_not_ended_is_cleared(cache: DiskCache) -> None:
    other = cache.folder / f".{KEYS[0]}-0.npy.1.part"
    other.touch()
    cache.new_array(KEYS[0], 0, (5, 2))
    cache.clear_unfinished(KEYS[0])
    assert list(cache.folder.iterdir()) == [other], "another process's is let alone"


def test_what_was_used_longest_ago_goes_first(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOUGH_CACHE_GB", "7e-6")  # 7,000 bytes: three entries
    for age, key in enumerate(KEYS):
        cache.save(key, [({}, ROWS)], filled=False)
        os.utime(cache.folder / f"{key}.json", (time.time() - 100 + age,) * 2)
    assert cache.read(KEYS[0], mapped=False), "and is used now"
    cache.make_room(2000)
    assert [cache.read(key, False) is not None for key in KEYS] == [True, False, True]
    assert not list(cache.folder.glob(f"{KEYS[1]}*"))


def test_what_a_kill_left_is_removed(cache: DiskCache) -> None:
    key, other = KEYS[0], "0" * 32
    cache.save(key, [({}, ROWS)], filled=False)
    old = [
        f"{other}-0.npy",
        f"{other}-0-bounds.npy",
        f".{key}-1.npy.7.part",
        f".{other}.json.7.part",
    ]
    young = [f"{'1' * 32}-0.npy", f".{other}-1.npy.7.part"]
    foreign = ["mine.npy", ".mine.part", "mine.json"]
    for name in (*old, *young, *foreign):
        (cache.folder / name).write_text(json.dumps([]))
    long_ago = time.time() - ORPHAN - 60
    for name in (*old, *foreign, f"{key}.json", f"{key}-0.npy"):
        os.utime(cache.folder / name, (long_ago, long_ago))
    cache.make_room(100)
    left = {file.name for file in cache.folder.iterdir()}
    assert left == {*young, *foreign, f"{key}.json", f"{key}-0.npy"}


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUGH_CACHE", "~/mine")
    assert cache_folder() == Path.home() / "mine"
    monkeypatch.delenv("BOUGH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/bough/states")


@pytest.mark.parametrize("value", ["10GB", "", "-1", "nan", "inf"])
def test_a_wrong_limit_is_a_mistake(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOUGH_CACHE_GB", value)
    with pytest.raises(
        UserError, match=f"BOUGH_CACHE_GB is '{value}'; expected a number"
    ) as caught:
        disk_limit()
    assert "\n" not in str(caught.value)


def test_a_cache_that_is_only_read(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of another user: it is used, and what is damaged in it stays."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    cache.save(KEYS[0], [({"name": "x"}, ROWS)], filled=False)
    (cache.folder / f"{KEYS[1]}.json").write_text("{")
    monkeypatch.setattr(os, "utime", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    assert cache.read(KEYS[0], mapped=False) is not None
    assert cache.read(KEYS[1]) is None
    assert cache.damaged == 1


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("place", [-1, -500, 70, 10])
def test_a_damaged_entry_is_not_computed_with(place: int, mapped: bool, cache: DiskCache) -> None:
    cache.save(KEYS[0], [({"name": "x"}, ROWS)], filled=False)
    file = cache.folder / f"{KEYS[0]}-0.npy"
    content = bytearray(file.read_bytes())
    content[place] ^= 8
    file.write_bytes(content)
    assert cache.read(KEYS[0], mapped) is None


def test_an_index_of_other_arrays_is_damage(cache: DiskCache) -> None:
    cache.save(KEYS[0], [({"name": "x"}, ROWS)], filled=False)
    index = cache.folder / f"{KEYS[0]}.json"
    index.write_text(index.read_text().replace('"x"', '"y"'))
    assert cache.read(KEYS[0], False) is None
    assert cache.damaged == 1
