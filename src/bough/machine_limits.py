"""The machine: what of it this process may use."""

from __future__ import annotations

import os
import sys

FILES = 2**16  # where the system sets no limit


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def files() -> int:
    """Files that this process may have open at a time; a connection is one."""
    if sys.platform == "win32":
        return FILES
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES if limit == resource.RLIM_INFINITY else min(limit, FILES)
