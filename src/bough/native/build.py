"""The C sources next to this file as one library, compiled for this processor at its first use.

The library lies in the user's cache folder under a name that says what it was made from and for, so
a new version or another processor makes its own. Where there is no compiler, or BOUGH_NATIVE is 0,
there is none, and everything is computed by torch alone. Its threads are torch's: both are linked
to OpenMP by the same name, so one pool of threads serves both.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
FLAGS = (
    "-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fopenmp",
    # No fast-math: what is no number must stay none, or a run would not notice that it exploded.
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
)  # fmt: skip
SECONDS = 120  # a compiler that takes longer is not at work


@cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None where they cannot be had."""
    named = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if os.environ.get("BOUGH_NATIVE") == "0" or not named or sys.platform != "linux":
        return None
    import torch  # noqa: F401  # its OpenMP must be loaded first

    for place in (_cache_folder, _temporary_folder):
        try:
            compiler = shlex.split(named)  # CC may have options: "ccache gcc"
            folder = place()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _ours_alone(folder):
                continue  # others could put a library of theirs there
            file = folder / f"{_digest(compiler)}.so"
            if not file.exists():
                _compile(compiler, file)
            return ctypes.CDLL(str(file))
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
            continue  # no home, nowhere to write, no such compiler, or one that fails
    return None


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "bough" / "native"


def _temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"bough-{os.getuid()}"


def _ours_alone(folder: Path) -> bool:
    """Whether nobody else can write there, nor put another folder in its place."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _digest(compiler: list[str]) -> str:
    """Of all that the library depends on."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, timeout=SECONDS).stdout
    parts = [version, " ".join([*compiler[1:], *FLAGS]).encode(), _processor().encode()]
    parts += [file.read_bytes() for file in sorted(SOURCES.glob("*.[ch]"))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _processor() -> str:
    """What this processor can do: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    known = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(known)}))


def _compile(compiler: list[str], file: Path) -> None:
    """Make the library beside its place, then put it there whole."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made = Path(folder) / "kernels.so"
        sources = sorted(map(str, SOURCES.glob("*.c")))
        command = [*compiler, *FLAGS, "-o", str(made), *sources]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        os.replace(made, file)
