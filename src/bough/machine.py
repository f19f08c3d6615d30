"""The machine: what of it this process may use."""

from __future__ import annotations

import os
import sys


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
