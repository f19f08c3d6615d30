"""The machine: what of it this process may use, and what others leave of it."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from threading import Lock

FILES = 2**16  # where the system sets no limit
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: "200000 100000" is two processors' time
LOOK = 0.2  # seconds for which other processes are watched
# How long an idle thread of OpenMP spins before it sleeps: about what lies between two products,
# not the milliseconds that are usual. GNU's counts spins, LLVM's milliseconds.
SHORT_SPIN = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
WAITING = ("OMP_WAIT_POLICY", *SHORT_SPIN)  # who sets one of these knows better
# Kernels that oneDNN, and torch above it, keep: one for every number of rows and kind of product.
KERNELS = 256
FEW_KERNELS = dict.fromkeys(("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"), str(KERNELS))


def cores(quota: Path = QUOTA) -> int:
    """Processors that this process may use."""
    return min(len(_processors()), _granted(quota))


def free_cores(quota: Path = QUOTA) -> int:
    """Processors that nobody else is using, at least one.

    Other work counts if it is there now and was in the last minute: what just ends, or has just
    begun, does not decide over hours.
    """
    import psutil

    shares = psutil.cpu_percent(LOOK, percpu=True)
    now = sum(shares[number] for number in _processors() if number < len(shares)) / 100
    others = min(now, psutil.getloadavg()[0])
    return max(1, min(round(len(_processors()) - others), cores(quota)))


def sleep_when_idle() -> None:
    """Threads of torch that wait for others are to sleep soon, and not to spin on.

    A spinning thread takes the time that another process, or the thread it waits for, could use; on
    a busy machine nearly all of it. One that sleeps at once is woken too often on an idle machine.
    OpenMP reads this when torch is loaded, and not later.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in WAITING):
        os.environ.update(SHORT_SPIN)


def keep_few_kernels() -> None:
    """Products of bf16 numbers are to leave no memory behind.

    A kernel for a new number of rows takes a millisecond to make and half a megabyte to keep, and a
    step needs a dozen for each number of rows on its tasks' paths. Training fills groups up to few
    different numbers (`native/row_kernels.py`), but long texts and other batches bring new ones,
    and a run that kept all grew by hundreds of megabytes. Read when the first product is made, for
    the whole process; who has set one of these knows better.
    """
    for name, value in FEW_KERNELS.items():
        os.environ.setdefault(name, value)


def give_back_memory() -> None:
    """Memory that nothing uses goes back to the system, where glibc would keep it.

    Arrays of ever other sizes leave gaps between them, which it keeps in case that something fits.
    """
    if sys.platform == "linux":
        import ctypes

        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # other libraries have none
            trim(0)


class Tidying:
    """Called between passes of all sizes, by any thread: gives memory back when it is due.

    A pass goes into the gaps that others have left where it fits in, and makes new ones: over a run
    they grow to hundreds of megabytes. But giving them back takes some 20 ms, and filling them anew
    as much again. So it is due every few seconds, or once what is held has grown by a share.
    """

    def __init__(self, every: float = 0.0, growth: float = 0.0):
        self._every = every  # seconds
        self._growth = growth  # of what was held after the last time
        self._last = time.monotonic()
        self._least = 0
        self._change = Lock()

    def __call__(self) -> None:
        if not self._change.acquire(blocking=False):
            return  # another thread is at it
        try:
            now = time.monotonic()
            if now < self._last + self._every or resident() <= self._least * (1 + self._growth):
                return
            self._last = now
            give_back_memory()
            self._least = resident()
        finally:
            self._change.release()


def resident() -> int:
    """Bytes of memory that this process holds."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def _processors() -> list[int]:
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _granted(quota: Path) -> int:
    """What a container may have; as much as there is where nothing is said."""
    try:
        time, period = quota.read_text(encoding="ascii").split()
        return max(1, math.ceil(int(time) / int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        return os.cpu_count() or 1


def files() -> int:
    """Files that this process may have open at a time; a connection is one."""
    if sys.platform == "win32":
        return FILES
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES if limit == resource.RLIM_INFINITY else min(limit, FILES)
