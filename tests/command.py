"""The command line in the tests' own process, and as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bough.cli import main

BOUGH = [str(Path(sys.executable).parent / "bough")]
QUIET = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def bough(*words: str | Path) -> int:
    """The command in this process; its exit code."""
    old = sys.argv
    sys.argv = ["bough", *map(str, words)]
    try:
        main.main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = old
    return 0
