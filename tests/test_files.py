"""Files that are the old or the new one, whatever happens in between."""

from __future__ import annotations

import csv
import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bough.files import DiskFullError, csv_writer, replacing, write_atomically
from tests.raising import raising


def test_a_file_is_the_old_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, raising(OSError(errno.EIO, "broken")))
            with pytest.raises(OSError, match="broken"):
                write_atomically(file, b"new")
        assert file.read_text() == "old"
        with monkeypatch.context() as patch:
            patch.setattr(os, name, raising(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                write_atomically(file, b"new")
        assert os.listdir(tmp_path) == ["file"], "nothing half-written stays"
    write_atomically(file, lambda out: out.write(b"new"))
    assert file.read_text() == "new"


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(DiskFullError, match=r"no space left to write .*file \(2\.0 MB\)"):
        write_atomically(file, b"x" * 2_000_000)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_text_written_bit_by_bit_takes_its_place_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")
    with replacing(file) as text:
        text.write("né\r\n")
        text.write("w")
        assert file.read_text() == "old"
    assert file.read_bytes() == "né\r\nw".encode()
    with pytest.raises(TypeError), replacing(file) as text:
        text.write(b"no text")  # type: ignore[arg-type]
    assert file.read_bytes() == "né\r\nw".encode()
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_under_bits_of_text_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.EDQUOT, "Quota exceeded")))
    with (
        pytest.raises(DiskFullError, match=r"no space left to write .*file \(1\.0 MB\)"),
        replacing(tmp_path / "file") as text,
    ):
        text.write("x" * 1_000_000)
    assert not os.listdir(tmp_path)


def test_every_cell_of_a_csv_file_is_read_back() -> None:
    rows = [["a", "b"], ["one\rtwo", "x"], ["\r", "\n"], ["a\r\nb", 'say "so", now'], ["", "\r\n"]]
    text = io.StringIO(newline="")
    table = csv_writer(text)
    table.writerow(rows[0])
    table.writerows(rows[1:])
    written = text.getvalue()
    assert written.startswith('a,b\n"one\rtwo",x\n'), "lines end as they always did"
    assert list(csv.reader(io.StringIO(written, newline=""))) == rows


def test_words_of_torch_for_a_full_disk_are_seen_through(tmp_path: Path) -> None:
    """What writes the content says RuntimeError; it is a full disk if the next write fails, too."""

    def fails(file: object) -> None:
        raise RuntimeError("unexpected pos 64 vs 0")

    with pytest.raises(RuntimeError, match="unexpected pos"):
        write_atomically(tmp_path / "file", fails)
    assert not os.listdir(tmp_path)


def test_a_limit_on_sizes_names_the_file(tmp_path: Path) -> None:
    """In a process of its own, as such a limit is for good."""
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from bough.files import write_atomically\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    write_atomically(Path(sys.argv[1]), bytes(1_000_000))\n"
        "except OSError as error:\n"
        "    print(f'{error.filename}: {error.strerror}')\n"
    )
    file = tmp_path / "large.bin"
    file.write_bytes(b"old")
    command = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{file}: larger (")
    assert "than a file may be here (ulimit -f)" in done.stdout
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["large.bin"]
