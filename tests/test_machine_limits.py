"""What of the machine is ours: fewer processors and files where the system says so."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bough.machine_limits import FILES, WAITING, cores, files, free_cores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux sets them")


def asked(code: str, *, before: str = "") -> str:
    whole = f"{before}\nfrom bough.machine_limits import cores, files\nprint({code})"
    command = [sys.executable, "-c", whole]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_processors_that_this_process_may_use() -> None:
    assert cores() == len(os.sched_getaffinity(0))
    first = min(os.sched_getaffinity(0))
    assert asked("cores()", before=f"import os; os.sched_setaffinity(0, {{{first}}})") == "1"


def test_files_that_may_be_open() -> None:
    assert 0 < files() <= FILES
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (77, 77))"
    assert asked("files()", before=limit) == "77"


@pytest.mark.parametrize(
    ("said", "granted"), [("100000 100000\n", 1), ("50000 100000", 1), ("max 100000", None)]
)
def test_a_container_may_have_less(said: str, granted: int | None, tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(said, encoding="ascii")
    assert cores(quota) == (granted or len(os.sched_getaffinity(0)))
    assert cores(tmp_path / "none") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("shares", "load", "free"),
    [
        ([0, 3, 2, 0], 0.1, 4),
        ([100, 100, 0, 0], 2.0, 2),
        ([100, 100, 100, 100], 9.0, 1),
        ([100, 100, 0, 0], 0.1, 4),  # just begun, perhaps soon over
        ([0, 0, 0, 0], 4.0, 4),  # just over
        ([60, 60, 60, 60], 2.5, 2),
    ],
)
def test_what_others_leave(
    shares: list[float], load: float, free: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    busy_elsewhere = [100.0] * 4  # on processors that are not ours
    monkeypatch.setattr("psutil.cpu_percent", lambda *_, **__: [*shares, *busy_elsewhere])
    monkeypatch.setattr("psutil.getloadavg", lambda: (load, 0.0, 0.0))
    assert free_cores(tmp_path / "none") == free


@pytest.mark.parametrize(
    ("before", "spins"),
    [
        ("", "1000"),
        ("import os; os.environ['OMP_WAIT_POLICY'] = 'ACTIVE'", "None"),
        ("import os; os.environ['GOMP_SPINCOUNT'] = '7'", "7"),
        ("import sys; sys.modules['torch'] = object()", "None"),  # too late: its threads are there
    ],
)
def test_idle_threads_sleep_soon_unless_told_otherwise(before: str, spins: str) -> None:
    whole = f"{before}\nimport bough, os\nprint(os.environ.get('GOMP_SPINCOUNT'))"
    plain = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run(
        [sys.executable, "-c", whole], env=plain, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == spins


@pytest.mark.parametrize(
    ("after", "gone"),
    [
        ("give_back_memory()", True),
        ("Tidying()()", True),
        ("Tidying(every=60)()", False),
        ("Tidying(growth=0.25)()", True),  # the first time, to know what is held without gaps
    ],
)
def test_gaps_between_what_is_used_go_back_to_the_system(after: str, gone: bool) -> None:
    made = """
import psutil
from bough.machine_limits import Tidying, give_back_memory
blocks = [bytearray(100_000) for _ in range(1000)]
blocks[:] = blocks[::10]
"""
    before, now = (
        int(asked("psutil.Process().memory_info().rss", before=made + what)) for what in ("", after)
    )
    assert (70e6 if gone else -5e6) < before - now < (100e6 if gone else 5e6)


def test_gaps_are_given_back_once_they_have_grown() -> None:
    made = """
from bough import machine_limits
given_back = []
machine_limits.give_back_memory = lambda: given_back.append(None)
held = iter([1000, 1000, 1200, 1250, 1251, 1100, 1375, 1376, 1376])
machine_limits.resident = lambda: next(held)
tidy = machine_limits.Tidying(growth=0.25)
for _ in range(6):
    tidy()
"""
    assert asked("len(given_back), list(held)", before=made) == "3 []"


KERNELS = """
import ctypes, sys, torch
import bough
from bough.machine_limits import FEW_KERNELS
import os
if sys.argv[1:]:
    for name in FEW_KERNELS:
        del os.environ[name]


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]


def used():
    info = ctypes.CDLL(None).mallinfo2
    info.restype = Info
    found = info()
    return (found.e + found.h) / 2**20  # mapped, and in use


weight = torch.zeros(256, 256, dtype=torch.bfloat16)
rows = torch.zeros(900, 256, dtype=torch.bfloat16)
for number in range(20, 900):
    if number == 320:  # more than are kept
        before = used()
    torch.nn.functional.linear(rows[:number], weight)
print(used() - before)
"""


def test_products_of_ever_other_sizes_leave_nothing_behind() -> None:
    """But for bough, they would: so this can fail."""
    if not torch.backends.mkldnn.is_available() or not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("no oneDNN, or a C library that does not tell how much memory is in use")
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("products of bf16 numbers are not oneDNN's here")
    grown = [
        float(subprocess.run([sys.executable, "-c", KERNELS, *words], capture_output=True,
                             text=True, check=True).stdout)
        for words in ([], ["as torch has it"])
    ]  # fmt: skip
    # How much more, the processor's kernels decide.
    assert grown[0] < 20
    assert grown[1] > max(10, 2 * grown[0])
