"""Training on a machine that others use, too: what is left of its speed alone.

    python benchmarks/side_by_side.py [--rounds 2] [--seconds 15] [--threads N] [--spin]

Runs `bough train` on the embedded tasks by the clock: alone, two at a time, and beside a loop on
every core that never rests; in turn, `--rounds` times. A speed is tokens per second of the steps,
and what is printed are ratios: two together against one alone, and one beside the loops against
one alone. `--spin` lets OpenMP's idle threads spin as long as they do by themselves, to show what
that costs; `--threads` is handed on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from bough import demo
from bough.machine_limits import WAITING, cores

GOMP_DEFAULT = "300000"  # spins of an idle thread before it sleeps, if nobody says otherwise
SPINNING = {"GOMP_SPINCOUNT": GOMP_DEFAULT}
SETTINGS = {
    "training.minutes": "{minutes}", "training.batch": "32", "training.sampling": "round-robin",
    "training.cosines_every": "0", "training.evaluate_rows": "8", "training.steps": "null",
    **{f"tasks.{task}.limit": "{{dev: 8}}" for task in ("sentiment", "questions", "similarity")},
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15, help="of one training's steps")
    parser.add_argument("--threads", type=int, help="of each training; else bough's choice")
    parser.add_argument("--spin", action="store_true", help="as long as GNU's OpenMP does")
    args = parser.parse_args()
    alone, together, beside = [], [], []
    for number in range(args.rounds):
        alone += trained(1, args)
        together.append(sum(trained(2, args)))
        with busy_loops(cores()):
            beside += trained(1, args)
        now = f"alone {alone[-1]:,.0f}, two {together[-1]:,.0f}, beside loops {beside[-1]:,.0f}"
        print(f"round {number + 1}: {now} tokens/s", flush=True)
    once = statistics.median(alone)
    print(f"two side by side, together, of one alone  {statistics.median(together) / once:.2f}")
    print(f"beside a busy loop on each core, of alone {statistics.median(beside) / once:.2f}")


def trained(number: int, args: argparse.Namespace) -> list[float]:
    """The speeds of so many trainings at a time."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / str(n) for n in range(number)]
        started = [subprocess.Popen(command(run, args), **how(args)) for run in runs]
        for process in started:
            _, said = process.communicate()
            if process.returncode:
                sys.exit(said)
        return [speed(run) for run in runs]


def command(run: Path, args: argparse.Namespace) -> list[str]:
    words = [sys.executable, "-m", "bough", "train", str(demo.recipe()), "-o", str(run)]
    for key, value in SETTINGS.items():
        words += ["--set", f"{key}={value.format(minutes=args.seconds / 60)}"]
    return words + (["--threads", str(args.threads)] if args.threads else [])


def how(args: argparse.Namespace) -> dict:
    chosen = {"OMP_NUM_THREADS", *WAITING}  # what this shell says is not what is measured
    environment = {k: v for k, v in os.environ.items() if k not in chosen}
    if args.spin:
        environment |= SPINNING
    return {
        "env": environment, "text": True,
        "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE,
    }  # fmt: skip


def speed(run: Path) -> float:
    cost = json.loads((run / "cost.json").read_text(encoding="utf-8"))
    return cost["tokens"] / cost["training_seconds"]


@contextmanager
def busy_loops(number: int):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main()
