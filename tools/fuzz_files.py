"""Files that somebody has damaged: whatever single thing is changed, bough says one sentence.

    python tools/fuzz_files.py [--cases 4000] [--seed 0] [--only KIND]

Recipes, tables of rows, encoders' and models' configs, tokenizers and the files of runs are changed
at one random place: a byte, a line, a value, a key. Then they are used as bough uses them. A file
is either read or refused by a `UserError` in one line; all else is a fault: a traceback, over 10
seconds of the processor's time, over 2 GiB of memory more than before, the end of the process.
Prints what became of them by kind, and each fault with how to see it again; exit code 1 if there
is one. Needs a system that can fork.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

# Threads do not outlive a fork: a child that waits for its parent's would wait for ever.
os.environ.update(TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from bough.comparison.compare import compare
from bough.data.dataset import Data
from bough.errors import UserError
from bough.inference.load import load
from bough.inference.torch_model import untrained_model
from bough.model import pretrained
from bough.recipe import yaml
from bough.recipe.recipe import Recipe
from bough.reports.page import report
from bough.runs.run_dir import Run
from tests import folders, simulated

SECONDS, MEMORY = 10.0, 2 * 2**30
SHOWN = 600  # characters of a fault
HANGS = 60.0  # seconds on the clock, which a busy machine may need
OUTCOMES = ("read", "refused", "traceback", "too slow", "too much memory", "process ended")
TEXTS: list[Any] = ["A fine film.", "\u202e \ufffd x", ("How old?", "What age?")]


class Outcome(NamedTuple):
    what: str  # one of OUTCOMES
    sentence: str  # of the error


@dataclass(frozen=True)
class Kind:
    """Files of one kind, and how bough uses them; each is whole again after its case."""

    name: str
    files: tuple[Path, ...]
    use: Callable[[], object]
    share: int  # of all cases


# --- one change ----------------------------------------------------------------------------------

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.5, 1e308, -1e-308, float("nan"), float("inf"), 2**31, 2**63,
    10**30, 10**5000, "", " ", "x", "0", "null", "nan", "-", "=1+1", "[/red]", "\x00", "\ud800",
    "\u202e", "../x", "${HOME}", "x" * 100_000, "S" * 300, [], {}, [[]], [None], ["x", "x"],
    {"": None}, {"x": {"y": []}}, [0] * 10_000,
)  # fmt: skip


def change(content: bytes, suffix: str, rng: random.Random) -> bytes:
    """One change: of a value where the file has such, of bytes or lines otherwise."""
    if suffix in (".json", ".yaml") and rng.random() < 0.7:
        return _encode(change_value(json.loads(content), rng))
    if suffix == ".jsonl" and rng.random() < 0.7:
        lines = content.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        lines[at] = _encode(change_value(json.loads(lines[at]), rng)) + b"\n"
        return b"".join(lines)
    if suffix in (".csv", ".tsv") and rng.random() < 0.5:
        return change_cell(content, b"\t" if suffix == ".tsv" else b",", rng)
    return change_bytes(content, rng)


def change_value(content: Any, rng: random.Random) -> Any:
    """Another value at some place, or a key or an element that is missing, doubled or renamed."""
    places = list(_places(content))
    owner, key = rng.choice(places)
    if owner is None:
        return rng.choice(STRANGE)
    match rng.choice(("value", "value", "value", "gone", "twice", "renamed", "grown")):
        case "gone":
            del owner[key]
        case "twice" if isinstance(owner, list):
            owner.insert(key, owner[key])
        case "renamed" if isinstance(owner, dict):
            owner[rng.choice(("", "x", "\x00", "__class__", key + "x", key * 99))] = owner.pop(key)
        case "grown" if isinstance(owner[key], int | float):
            owner[key] = owner[key] * rng.choice((-1, 10, 1000, 10**9)) + rng.choice((0, 1))
        case _:
            owner[key] = rng.choice(STRANGE)
    return content


def _places(content: Any, owner: Any = None, key: Any = None) -> Iterator[tuple[Any, Any]]:
    yield owner, key
    inside: Any = ()
    if isinstance(content, dict):
        inside = content.items()
    elif isinstance(content, list):
        inside = enumerate(content[:50])  # a vocabulary's thousands would drown all else
    for number, (name, value) in enumerate(inside):
        if number < 50:
            yield from _places(value, content, name)


def _encode(content: Any) -> bytes:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(content).encode()
    finally:
        sys.set_int_max_str_digits(limit)


def change_cell(content: bytes, delimiter: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines()
    at = rng.randrange(len(lines)) if rng.random() < 0.7 else 0
    cells = lines[at].split(delimiter)
    new = str(rng.choice(STRANGE[:15] + STRANGE[16:])).encode(errors="surrogatepass")
    cells[rng.randrange(len(cells))] = new
    lines[at] = delimiter.join(cells)
    return b"\n".join(lines) + b"\n"


def change_bytes(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    stop = min(len(content), start + rng.choice((1, 1, 2, 10, 100)))
    junk = rng.choice((b"\x00", b"\xff", b'"', b"\n", b"{", b"]", b",", b"\t", rng.randbytes(3)))
    lines = content.splitlines(keepends=True)
    match rng.randrange(7):
        case 0:
            return content[:start] + junk + content[start:]
        case 1:
            return content[:start] + content[stop:]
        case 2:
            return content[:start] + junk + content[stop:]
        case 3:
            return content[:start]
        case 4:
            return content[:stop] + content[start:]
        case 5 if lines:
            del lines[rng.randrange(len(lines))]
        case _ if lines:
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    return b"".join(lines)


# --- what becomes of it --------------------------------------------------------------------------


def outcome_of(use: Callable[[], object]) -> Outcome:
    """Of a use in this process."""
    began = time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            use()
        outcome = Outcome("read", "")
    except UserError as error:
        lines = str(error).splitlines()
        what = "refused" if len(lines) == 1 else "traceback"
        outcome = Outcome(what, f"{len(lines)} lines: {error}" if what != "refused" else lines[0])
    except BaseException as error:  # panics are no Exceptions
        few = "".join(traceback.format_exception(error)[-3:])
        memory = isinstance(error, MemoryError) or "allocate memory" in str(error)
        outcome = Outcome("too much memory" if memory else "traceback", few)
    if time.process_time() - began > SECONDS:
        return Outcome("too slow", f"{time.process_time() - began:.1f} s; {outcome.sentence}")
    return outcome


def run_case(kind: Kind, number: int, seed: int) -> Outcome:
    """The same change for the same number and seed, always."""
    rng = random.Random(f"{seed} {kind.name} {number}")
    file = rng.choice(kind.files)
    whole = file.read_bytes()
    try:
        file.write_bytes(change(whole, file.suffix, rng))
        outcome = outcome_of(kind.use)
    finally:
        file.write_bytes(whole)
    return Outcome(outcome.what, f"{file.name}: {outcome.sentence}")


def work(kind: Kind, numbers: Sequence[int], seed: int, told: Connection) -> None:
    """In a process of its own, with so much memory more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in numbers:
        told.send(run_case(kind, number, seed))
    told.close()


def run(kind: Kind, numbers: Sequence[int], seed: int) -> list[Outcome]:
    """The outcomes of these cases; a process that ends or hangs is replaced by another."""
    found: list[Outcome] = []
    kept = {file: file.read_bytes() for file in kind.files}
    fork = multiprocessing.get_context("fork")
    while len(found) < len(numbers):
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=work, args=(kind, numbers[len(found) :], seed, theirs))
        process.start()
        theirs.close()
        try:
            while len(found) < len(numbers) and ours.poll(HANGS):
                found.append(ours.recv())
            if len(found) < len(numbers):
                found.append(Outcome("too slow", f"hangs for over {HANGS:g} s"))
                process.kill()
            process.join()
        except EOFError:
            process.join()
            found.append(Outcome("process ended", f"exit code {process.exitcode}"))
        for file, content in kept.items():
            file.write_bytes(content)
    return found


# --- the files -----------------------------------------------------------------------------------


def kinds(place: Path) -> list[Kind]:
    """Whole files of every kind in this folder, and what reads them."""
    encoder = folders.encoder(place / "encoder")
    rows = folders.data(place / "rows")
    recipe = place / "recipe.yaml"
    recipe.write_text(json.dumps(folders.recipe(encoder, rows=rows)))
    lines = place / "rows.jsonl"
    lines.write_text("".join(f'{{"text": "leaf {n}", "label": {n % 2}}}\n' for n in range(20)))
    task = {"kind": "classify", "text": "text", "train": str(lines), "dev": str(lines)}
    told = Recipe.read(recipe)
    model = untrained_model(told, Data.gather(told))[0].save(place / "model")
    survey = simulated.survey(place / "survey", ["full", "split@3"], 2, rows=24, steps=40)
    first = survey / "runs" / "full-0"
    own = ("metrics.jsonl", "scores.json", "cost.json", "environment.json", "plan.txt",
           "recipe.yaml", "model/config.json")  # fmt: skip
    run_recipe = first / "recipe.yaml"
    run_recipe.write_text(json.dumps(yaml.parse(run_recipe.read_text(), "recipe")[0]))

    def begin() -> None:
        told = Recipe.read(recipe)
        untrained_model(told, Data.gather(told))

    def answer() -> None:
        load(model).predict(TEXTS)

    def show() -> None:
        print(compare([survey / "runs"]))
        list(Run.open(first).metrics())
        report([survey / "runs"], place / "report.html")

    return [
        Kind("recipes", (recipe,), begin, 8),
        Kind("tables", tuple(sorted(rows.glob("*.csv"))), lambda: Data.gather(told), 8),
        Kind("JSON lines", (lines,), lambda: Data.gather(Recipe.read({"tasks": {"t": task}})), 4),
        Kind("encoders", (encoder / "config.json",), lambda: pretrained.load(str(encoder)), 4),
        Kind("models", (model / "config.json",), answer, 5),
        Kind("tokenizers", (model / "tokenizer.json",), answer, 5),
        Kind("runs", tuple(first / name for name in own), show, 4),
        Kind("predictions", tuple(sorted((first / "predictions").glob("*.csv"))), show, 2),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds with this in their name")
    asked = parser.parse_args()
    faults = 0
    print("kind".ljust(20), *(what.rjust(16) for what in OUTCOMES))
    with tempfile.TemporaryDirectory() as place:
        known = kinds(Path(place))
        each = asked.cases / sum(kind.share for kind in known)
        for kind in known:
            if asked.only not in kind.name:
                continue
            outcomes = run(kind, range(round(each * kind.share)), asked.seed)
            counts = Counter(outcome.what for outcome in outcomes)
            print(kind.name.ljust(20), *(f"{counts[what]:16,}" for what in OUTCOMES), flush=True)
            for number, (what, sentence) in enumerate(outcomes):
                if what not in OUTCOMES[:2]:
                    faults += 1
                    print(f"  {kind.name}, case {number}: {what}: {sentence[:SHOWN]}", flush=True)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
