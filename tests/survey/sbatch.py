"""Stands in for Slurm's sbatch: takes the options that we give, runs the tasks here, then returns.

KILL=3 in the environment: the third task is killed as soon as its run has a checkpoint.
"""

from __future__ import annotations

import os
import re
import shlex
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
    options: dict[str, str] = {}
    for line in lines:
        if line.startswith("#SBATCH"):
            assert not re.search(r"(?<!\\)#", line[1:]), "sbatch takes the rest for a comment"
            for word in shlex.split(line.replace("\\#", "#"))[1:]:
                if not word.startswith("--"):
                    sys.exit(f"sbatch: error: Unable to open file {word}")
                name, _, value = word.removeprefix("--").partition("=")
                options[name] = value
    if unknown := options.keys() - KNOWN:
        sys.exit(f"sbatch: error: unrecognized option '--{unknown.pop()}'")
    match = re.fullmatch(r"0-(\d+)(%\d+)?", options["array"])
    assert match is not None
    for number in range(int(match[1]) + 1):
        output = _filled(options["output"], {"%%": "%", "%A": "7", "%a": str(number)})
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


def _filled(pattern: str, fields: dict[str, str]) -> str:
    return re.sub("%.", lambda field: fields[field[0]], pattern)


if __name__ == "__main__":
    main(*sys.argv[1:])
