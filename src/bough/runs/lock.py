"""A lock file: one process at a time writes a run or a survey.

The system's own lock, which goes with the process, however it ends; never a file whose mere
existence is the lock, for that would outlive a kill. A file system without such locks (some network
file systems) is refused as one that cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bough.errors import UserError

BUSY = 75  # exit code of a worker that was refused by a lock: EX_TEMPFAIL, try again later


class LockedError(UserError):
    """Another process has it; it lets go when it ends."""


@contextmanager
def locked(path: Path, what: str = "run", wait: bool = False) -> Iterator[None]:
    """Within, this file is ours alone; where another process has it, refused at once, or waited
    for."""
    lock = FileLock(path, blocking=wait, thread_local=False, fallback_to_soft=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        acquired = lock.acquire()
    except Timeout:
        reason = f"another process is writing this {what}; wait for it"
        raise LockedError(f"{path.parent}: {reason}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(
            f"{path.parent}: cannot be written ({reason}); choose another place"
        ) from None
    with acquired:
        yield
