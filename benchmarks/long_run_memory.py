"""Does a long run's memory grow? Trains for a while and watches the process from outside.

    BOUGH_DATA=path/to/cs224n python benchmarks/long_run_memory.py [--minutes 60] [--threads 2]

MiniLM under `full` on the three tasks of the CS224N project, 32 of each in every step, evaluated
every 500 steps. Prints the peak and the resident memory after a minute of steps and then every five
minutes; the last line has the peak at the end and its ratio to the first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = Path(__file__).parent.parent / "recipes" / "cs224n.yaml"
SETTINGS = {
    "plan": "full",
    "training.sampling": "each",
    "training.lr": "1e-4",
    "training.evaluate_every": "500",
    "training.evaluate_rows": "2000",
    "training.epochs": "null",
}


def memory(process: int) -> dict[str, float]:
    """Megabytes: the peak (VmHWM) and what is resident now (VmRSS)."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {key: int(fields[key].split()[0]) / 1024 for key in ("VmHWM", "VmRSS")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if "BOUGH_DATA" not in os.environ:
        sys.exit("long_run_memory: set BOUGH_DATA to the folder of the CS224N project")
    settings = SETTINGS | {"training.minutes": f"{args.minutes:g}"}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "bough", "train", str(RECIPE), "-o", str(run)]
        command += ["--threads", str(args.threads)]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            watch(process, run / "metrics.jsonl", args.minutes)
        if process.returncode:
            sys.exit(f"long_run_memory: training ended with code {process.returncode}")


def watch(process: subprocess.Popen[bytes], log: Path, minutes: float) -> None:
    while process.poll() is None and not (log.is_file() and '"loss"' in log.read_text("utf-8")):
        time.sleep(0.5)
    began = time.monotonic()
    first = last = 0.0
    due = 1.0
    while process.poll() is None:
        time.sleep(1)
        past = (time.monotonic() - began) / 60
        try:
            now = memory(process.pid)
        except (FileNotFoundError, KeyError, ProcessLookupError):  # it has just ended
            break
        last = now["VmHWM"]
        if past >= due:
            held = now["VmRSS"]
            print(f"{past:5.1f} min: peak {last:,.0f} MB, resident {held:,.0f} MB", flush=True)
            first = first or last
            due = 5.0 if due == 1 else due + 5
        if past > minutes + 10:
            process.terminate()
    if first:
        print(f"peak at the end {last:,.0f} MB: {last / first:.3f} of that after a minute")


if __name__ == "__main__":
    main()
