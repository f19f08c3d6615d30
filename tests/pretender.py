"""Stands in for `bough train` where a survey is tested, not training: writes a run directory fast.

The score falls with the distance of the learning rate from 1e-3. A learning rate of 666 fails, one
of 13 dies, one below 1e-5 is slow. Every start is noted in `starts.txt` of the run.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from pathlib import Path

import yaml

from bough.runs.run_dir import Writer

STEPS = 4


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    if arguments[1] == "--resume":
        writer = Writer.resume(Path(arguments[2]))
        recipe = yaml.safe_load(writer.run.recipe_file.read_text())
    else:
        writer = Writer.start(Path(arguments[3]))
        recipe = yaml.safe_load(Path(arguments[1]).read_text())
        writer.write("recipe.yaml", Path(arguments[1]).read_text())
        writer.write("plan.txt", f"{recipe['plan']}\n")
    folder = writer.run.folder
    with open(folder / "starts.txt", "a") as starts:
        starts.write("start\n")
    lr = float(recipe["training"]["lr"])
    if lr == 666:
        sys.exit("bough: the loss is not a finite number at step 2")
    if lr == 13:
        signal.raise_signal(signal.SIGKILL)
    writer.write("model/model.safetensors", b"x" * (200 if "split" in recipe["plan"] else 100))
    done = sum("dev" in entry for entry in writer.run.metrics())
    for step in range(done + 1, STEPS + 1):
        best = 1 - abs(math.log10(lr) + 3) / 10
        dev = {
            "tasks": {name: {"metric": "accuracy", "accuracy": best} for name in recipe["tasks"]},
            "raw": best * step / STEPS,
            "normalised": best * step / STEPS,
        }
        writer.log({"step": step, "loss": {}, "seconds": step})
        writer.log({"step": step, "dev": dev})
        writer.write("checkpoint/state.pt", b"state")
        time.sleep(1 if lr < 1e-5 else 0)
    cost = {"bytes_to_serve": len(recipe["plan"]), "step_seconds": 1.0, "training_seconds": STEPS}
    writer.write_json(
        "cost.json", {**cost, "bytes_to_serve": 200 if "split" in recipe["plan"] else 100}
    )
    writer.write_json("scores.json", {"dev": dev})
    writer.close()


main(sys.argv[1:])
