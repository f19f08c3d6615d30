"""A process that runs one verb for another process, and stops when that one is gone.

Its standard input is a pipe that its parent holds open and never writes to. However the parent
ends, the system closes the pipe; the worker then gives itself SIGTERM, on which a run writes its
checkpoint and stops. So no run goes on that nobody waits for.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from bough.cli.main import main
from bough.runs.lock import BUSY


def _end_with_parent() -> None:
    # The file itself is read, not sys.stdin: no lock of Python's is held while waiting.
    while os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(BUSY)
