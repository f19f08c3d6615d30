"""Data larger than memory wants to be: two million rows prepared, found again, and learned from.

    python benchmarks/large_data.py [--rows 2000000] [--folder DIR] [--steps 40]

Writes a table of made-up texts (words of the embedded data, about 115 bytes a row), and prints,
each in a process of its own: how fast `tokenizers` alone encodes its texts, on all cores; how long
preparing takes, and with how much memory (of this process and those it starts); how long a second
start takes until rows and tokens are there, and until the first step; and tokens a second in
training, against a table of 8,000 rows, in turn; and how long `bough train` as a command takes to
its first step, from Python's start on. MiniLM, `full`, one task, lengths up to 128.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

SMALL = 8000  # rows of the table that is compared with
ALONE = 150_000  # texts that `tokenizers` alone is timed on
PART = 1024


def write_rows(file: Path, rows: int) -> None:
    """Sentences of the words of real ones, with their frequencies; no two alike."""
    from bough.demo import folder

    rng = random.Random(0)
    with (folder() / "sentiment-train.csv").open(newline="", encoding="utf-8") as opened:
        words = [word for row in csv.DictReader(opened) for word in row["text"].split()]
    with file.open("w", newline="", encoding="utf-8") as opened:
        table = csv.writer(opened)
        table.writerow(["id", "text", "label"])
        while rows:
            many = min(rows, 10_000)
            drawn = rng.choices(words, k=30 * many)
            for n in range(many):
                size = rng.randrange(8, 31)
                text = " ".join(drawn[30 * n : 30 * n + size])
                table.writerow([rows - n, text, rng.choice(("bad", "good", "so-so"))])
            rows -= many


def recipe_of(file: Path, steps: int = 1) -> dict:
    task = {"kind": "classify", "text": "text", "label": "label"}
    dev = {"train": str(file), "dev": str(file.with_name("dev.csv"))}
    training = {"steps": steps, "batch": 32, "warmup": 0, "heads": "fresh", "select": "last"}
    return {
        "encoder": "minilm",
        "max_length": 128,
        "tasks": {"made-up": {**task, **dev}},
        "training": training,
    }


# --- what the processes do ------------------------------------------------------------------------


def alone(file: Path) -> dict:
    """The tokenizer by itself: no reading, no checking, and its numbers only taken as lists."""
    from bough.model import pretrained

    with file.open(newline="", encoding="utf-8") as opened:
        texts = [row["text"] for row, _ in zip(csv.DictReader(opened), range(ALONE), strict=False)]
    tokenizer = pretrained.load("minilm").tokenizer
    tokenizer.enable_truncation(128, strategy="longest_first")
    tokenizer.encode_batch_fast(texts[:PART])
    began = time.perf_counter()
    for start in range(0, len(texts), PART):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + PART]):
            encoding.ids  # noqa: B018
    return {"rows_per_second": len(texts) / (time.perf_counter() - began)}


def prepare(file: Path) -> dict:
    """Rows and tokens, as training gets them."""
    from bough.data.dataset import Data
    from bough.model import pretrained
    from bough.recipe.recipe import Recipe

    tokenizer = pretrained.load("minilm").tokenizer
    most = Peak()
    began = time.perf_counter()
    data = Data.gather(Recipe.read(recipe_of(file)), tokenizer=tokenizer, longest=128)
    seconds = time.perf_counter() - began
    data.noticed(), data.digests()
    examples = data.examples("train", tokenizer, 128)["made-up"]
    return {
        "rows": len(examples),
        "seconds": seconds,
        "with_checks": time.perf_counter() - began,
        "tokens": int(examples.sequences.bounds[-1]),
        "memory": most.stop(),
    }


def start(file: Path) -> dict:
    """From the recipe to the first step, and many more, as `bough train` goes."""
    import torch

    from bough.recipe.recipe import Recipe
    from bough.runs.console import Silent
    from bough.runs.run_dir import Writer
    from bough.training.phase import Phase, Progress
    from bough.training.trainer import Trainer

    steps = int(os.environ["STEPS"])
    recipe = Recipe.read(recipe_of(file, steps))
    torch.set_num_threads(os.cpu_count() or 1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer.start(Path(folder) / "run")
        trainer = Trainer(recipe, writer, Silent(), None)
        trainer.data.digests()  # as the run writes them
        ready = time.perf_counter() - began
        phase = Phase(
            trainer.schedules[0], Progress(), trainer.network, trainer.learned,
            recipe.task_weights(),
        )  # fmt: skip
        tokens, pace = 0, 0.0
        first = 0.0
        for step in range(steps):
            before = time.perf_counter()
            tokens_of_step = phase.step().tokens
            if step == 0:
                first = time.perf_counter() - began
            elif step > 2:
                tokens += tokens_of_step
                pace += time.perf_counter() - before
        writer.close()
    return {"ready": ready, "first_step": first, "tokens_per_second": tokens / max(pace, 1e-9)}


def command(file: Path, cache: Path) -> float:
    """Seconds of `bough train`, from Python's start to the line of the first step."""
    with tempfile.TemporaryDirectory() as folder:
        recipe, log = Path(folder) / "recipe.yaml", Path(folder) / "run" / "metrics.jsonl"
        made = recipe_of(file, steps=2)
        made["training"]["log_every"] = 1
        recipe.write_text(json.dumps(made), encoding="utf-8")
        words = [sys.executable, "-m", "bough", "train", str(recipe), "-o", str(log.parent)]
        began = time.perf_counter()
        environment = {**os.environ, "BOUGH_CACHE": str(cache)}
        running = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        while not (log.exists() and '"loss"' in log.read_text(encoding="utf-8")):
            assert running.poll() is None, "it has ended before its first step"
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        running.wait()
        return seconds


class Peak:
    """The most memory of this process and its children together, looked at five times a second."""

    def __init__(self) -> None:
        self.most = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self) -> None:
        this = psutil.Process()
        while not self.ended.wait(0.2):
            total = 0
            for process in (this, *this.children()):
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.most = max(self.most, total)

    def stop(self) -> int:
        self.ended.set()
        self.thread.join()
        return self.most


# --- one after the other --------------------------------------------------------------------------


def process(what: str, file: Path, cache: Path, steps: int = 1) -> dict:
    environment = {**os.environ, "BOUGH_CACHE": str(cache), "STEPS": str(steps)}
    command = [sys.executable, __file__, "--do", what, "--file", str(file)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--turns", type=int, default=3, help="of training on each table")
    parser.add_argument("--folder", type=Path, help="where the table is, or is written")
    parser.add_argument("--do", choices=("alone", "prepare", "start"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.do:
        print(json.dumps({"alone": alone, "prepare": prepare, "start": start}[args.do](args.file)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        large, small = folder / "large.csv", folder / "small.csv"
        if not large.exists():
            write_rows(large, args.rows)
            write_rows(small, SMALL)
            write_rows(folder / "dev.csv", 500)
        size = large.stat().st_size
        print(f"{os.cpu_count()} cores; {args.rows:,} rows, {size / 1e6:.0f} MB", flush=True)
        cache = Path(temporary) / "cache"
        before = process("alone", large, cache)["rows_per_second"]
        made = process("prepare", large, cache)
        after = process("alone", large, cache)["rows_per_second"]
        rate, plain = made["rows"] / made["seconds"], (before + after) / 2
        kept = sum(file.stat().st_size for file in cache.glob("*"))
        print(
            f"preparing: {made['seconds']:.0f} s ({made['with_checks']:.0f} s with what is said of "
            f"them), {rate:,.0f} rows/s, {rate / plain:.2f} of tokenizers alone ({plain:,.0f}); "
            f"memory {made['memory'] / 1e6:,.0f} MB; {kept / 1e6:,.0f} MB are kept"
        )
        again = process("prepare", large, cache)
        print(f"second time: rows and tokens are there after {again['with_checks']:.1f} s")
        paces: dict[str, list[float]] = {"large": [], "small": []}
        for _ in range(args.turns):
            for name, file in (("large", large), ("small", small)):
                begun = process("start", file, cache, args.steps)
                paces[name].append(begun["tokens_per_second"])
                print(
                    f"{name}: ready after {begun['ready']:.1f} s, first step after "
                    f"{begun['first_step']:.1f} s, {begun['tokens_per_second']:,.0f} tokens/s",
                    flush=True,
                )
        for name, file in (("large", large), ("small", small)) * 2:
            print(f"{name}: `bough train` is at its first step after {command(file, cache):.1f} s")
        ratios = [a / b for a, b in zip(paces["large"], paces["small"], strict=True)]
        print(f"tokens/s, large of small: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")


if __name__ == "__main__":
    main()
