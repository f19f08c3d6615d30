"""Stands in for Slurm's sbatch: takes the options that we give, runs the tasks here, then returns.

KILL=3 in the environment: the third task is killed as soon as its run has a checkpoint.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

KNOWN = {"job-name", "array", "cpus-per-task", "output", "open-mode", "signal", "requeue"}


def main(parsable: str, script: str) -> None:
    assert parsable == "--parsable"
    lines = Path(script).read_text().splitlines()
    assert lines[0].startswith("#!")
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", "\n".join(lines), re.MULTILINE))
    if unknown := options.keys() - KNOWN:
        sys.exit(f"sbatch: error: unrecognized option '--{unknown.pop()}'")
    match = re.fullmatch(r"0-(\d+)(%\d+)?", options["array"])
    assert match is not None
    for number in range(int(match[1]) + 1):
        output = options["output"].replace("%A", "7").replace("%a", str(number))
        with open(output, "a") as log:
            task = subprocess.Popen(
                ["/bin/sh", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, "SLURM_ARRAY_TASK_ID": str(number)},
            )  # fmt: skip
            if os.environ.get("KILL") == str(number + 1):
                runs = Path(script).parents[1] / "runs"
                before = set(runs.glob("*/checkpoint/state.pt"))
                while not set(runs.glob("*/checkpoint/state.pt")) - before:
                    time.sleep(0.02)
                task.send_signal(signal.SIGKILL)
            task.wait()
    print("7;cluster")


if __name__ == "__main__":
    main(*sys.argv[1:])
