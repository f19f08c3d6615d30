"""A survey as a Slurm array: a task per run, or per process of a search, on a folder that all see.

What is submitted stands in the script itself, of which Slurm keeps its own copy: a survey may be
asked for again, with other runs, while an array waits. A run that two arrays hold is done once.
Partition, account and time limit are sbatch's own matter: SBATCH_PARTITION, SBATCH_ACCOUNT and
SBATCH_TIMELIMIT say them. Shortly before the time is up, and when the job is cancelled, a run
writes its checkpoint.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from bough.errors import UserError
from bough.files import write_atomically
from bough.survey.cells import RunSpec
from bough.survey.launcher import Keep
from bough.survey.spec import Survey
from bough.survey.survey_dir import SurveyDir

WARNED = 120  # seconds before its time is up that a run is told to stop
PYTHON = (sys.executable, "-P", "-m")


def submit(
    folder: SurveyDir,
    survey: Survey,
    specs: Sequence[RunSpec],
    workers: int | None,
    keep: Keep,
    retry: bool = False,
) -> str:
    """Hand the runs to sbatch, at most `workers` at a time; of a search, so many processes that
    search, after `retry` the failed trials again. The job's number."""
    if shutil.which("sbatch") is None:
        raise UserError("--slurm needs sbatch; ask where Slurm's commands are")
    path = str(folder.path.resolve())
    if survey.search is not None:
        one = [*PYTHON, "bough", "survey", path, "--keep", keep]
        # One alone: a second would queue what has failed since the first began.
        commands = [[*one, *(["--retry"] if retry else [])], *[one] * ((workers or 1) - 1)]
        most = ""
    else:
        for spec in specs:
            folder.add(spec)
        commands = [[*PYTHON, "bough.survey.one_run", path, spec.name, keep] for spec in specs]
        most = f"%{workers}" if workers else ""
    base = survey.base
    logs = folder.path.resolve() / "slurm"
    logs.mkdir(exist_ok=True)
    options: dict[str, object] = {
        "job-name": folder.path.name,
        "array": f"0-{len(commands) - 1}{most}",
        "cpus-per-task": base.threads or 1,
        "output": f"{str(logs).replace('%', '%%')}/%A-%a.txt",  # where % begins a field
        "open-mode": "append",
        "signal": f"B:TERM@{WARNED}",
    }
    if base.device.startswith("cuda"):
        options["gpus-per-task"] = 1
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH --{name}={_quoted(str(value))}" for name, value in options.items()),
        "#SBATCH --requeue",
        'case "$SLURM_ARRAY_TASK_ID" in',
        *(f"{number}) exec {shlex.join(words)};;" for number, words in enumerate(commands)),
        "esac",
    ]
    script = logs / "array.sh"
    write_atomically(script, "\n".join([*lines, ""]))
    told = subprocess.run(
        ["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=False
    )
    if told.returncode:
        why = (told.stderr or told.stdout).strip().splitlines() or ["no reason given"]
        raise UserError(f"sbatch does not take {script}: {why[-1]}")
    return told.stdout.strip().partition(";")[0]


def _quoted(value: str) -> str:
    """As sbatch reads its lines: blanks part words, and # begins a comment even within quotes."""
    escaped = re.sub(r'(["\\#])', r"\\\1", value)
    return f'"{escaped}"'
