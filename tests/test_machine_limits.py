"""What of the machine is ours: fewer processors and files where the system says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bough.machine_limits import FILES, cores, files

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
