"""A server under attack: is it alive all the time, and are honest clients answered?

    python benchmarks/serve_attack.py [--only NAME] [--seconds 15]

Each attack is made by a process of its own, against a server of its own with a small encoder of
random weights, on loopback only. Meanwhile /health is asked every 50 ms and an honest request of
one text is sent every 300 ms, each on a connection of its own. A request that is refused is sent
again after the second that `Retry-After` asks for, three times at most; it counts if it is answered
within 10 s of its first try. Then the server is told to end, while the attack goes on. Attacks
on what is answered, rather than on whether, follow. Under five minutes in all.

"before" are constants: what this script measured, on two cores that it had to itself, of the
version before these defences (commit 4d1a71b), by

    python benchmarks/serve_attack.py --path FOLDERS --model FOLDER

FOLDERS being the import path of the server's process, with a `tests.serve.attacked` for that
version, and FOLDER a model that it has saved.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from serve_attackers import CURSE, Address, ask, get, texts

ROOT = Path(__file__).parent.parent
HONEST = 50
PATIENCE = 10.0  # seconds that an honest client waits
TEXT = "the old tree"
BEFORE = {
    "none": "/health p99 13 ms; 50 of 50 answered, median 10 ms; ends in 1.6 s",
    "64 clients that never read": (
        "/health p99 536 ms; 50 of 50 answered, median 465 ms; ends in 1.5 s"
    ),
    "the same, `ulimit -n 128`": "/health p99 never; 0 of 50 answered, median never; ends in 1.3 s",
    "1,500 dripping connections": (
        "/health p99 never; 33 of 50 answered, median 10 ms; ends in 22.2 s"
    ),
    "12 bodies at a time of a million lists": (
        "/health p99 8419 ms; 41 of 50 answered, median 5299 ms; ends in 21.0 s"
    ),
    "12 bodies at a time of a million quotes": (
        "/health p99 158 ms; 50 of 50 answered, median 78 ms; ends in 1.3 s"
    ),
    "8 texts at a time that make the tokenizer panic": (
        "/health p99 9 ms; 0 of 50 answered, median never; ends in 10.9 s"
    ),
    "a page whose name leads here (DNS rebinding)": (
        "reads /tasks, and is redirected to its own name"
    ),
    "one text that panics, four times": (
        "gets nothing, nothing, nothing, nothing; then /ready says 200, other "
        "texts are not answered"
    ),
    "its weights' file overwritten with NaN, then cut": (
        '200: `{"answers":[{"mood":{"label":"x","score":NaN,"probabilities":{"x":NaN,...`; when it '
        "is cut, ends with -7"
    ),
    "weights that are NaN": "does not start (exit code 2)",
}


class Served(NamedTuple):
    """The server's process, where it listens (nowhere: it did not start), and its model."""

    process: subprocess.Popen[str]
    address: Address | None
    model: Path

    def asked(self, message: bytes) -> tuple[int, bytes]:
        assert self.address is not None
        return asyncio.run(ask(self.address, message))


@dataclass(frozen=True)
class Bench:
    """Starts servers, each with a copy of the model."""

    model: Path
    path: str  # where the server's process imports from
    place: Path

    @contextlib.contextmanager
    def server(self, files: int | None = None, damage: bool = False) -> Iterator[Served]:
        """One that may open so many files."""
        folder = Path(tempfile.mkdtemp(dir=self.place)) / "model"
        shutil.copytree(self.model, folder)
        if damage:
            fill_with_nan(folder / "model.safetensors")
        limit = files or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.attacked", "serve", str(folder), "--port", "0"],
            env=os.environ | {"PYTHONPATH": self.path, "OMP_NUM_THREADS": "1"},
            cwd=folder,  # nothing is imported from here
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        )
        assert process.stdout is not None
        found = re.search(r"http://([\d.]+):(\d+)", process.stdout.readline())
        try:
            yield Served(process, (found[1], int(found[2])) if found else None, folder)
        finally:
            process.kill()
            process.wait()


def end(server: Served) -> str:
    """Told to end, it does so: after how many seconds."""
    began = time.monotonic()
    server.process.terminate()
    try:
        server.process.wait(60)
    except subprocess.TimeoutExpired:
        return "not within 60 s"
    return f"in {time.monotonic() - began:.1f} s"


# --- attacks on whether it answers ---------------------------------------------------------------


async def health(address: Address, times: list[float]) -> None:
    while True:
        began = time.perf_counter()
        status, _ = await ask(address, get("/health"))
        times.append(time.perf_counter() - began if status == 200 else float("inf"))
        await asyncio.sleep(0.05)


async def honest(address: Address, number: int, seconds: float) -> float:
    """The seconds that a request took, with what was tried again; inf: not answered."""
    await asyncio.sleep(number * seconds / HONEST)
    began = time.monotonic()
    for _ in range(4):
        status, _ = await ask(address, texts(TEXT), PATIENCE + began - time.monotonic())
        if status == 200:
            return time.monotonic() - began
        await asyncio.sleep(1)
    return float("inf")


async def under_attack(address: Address, seconds: float) -> tuple[list[float], list[float]]:
    times: list[float] = []
    watching = asyncio.create_task(health(address, times))
    took = await asyncio.gather(*(honest(address, n, seconds) for n in range(HONEST)))
    watching.cancel()
    return times, took


def quantile(times: list[float], share: float) -> str:
    value = sorted(times)[min(len(times) - 1, int(share * len(times)))]
    return f"{1e3 * value:.0f} ms" if value < float("inf") else "never"


def outlast(bench: Bench, attack: str, files: int | None, seconds: float) -> str:
    """What becomes of honest clients while an attack runs."""
    script = Path(__file__).with_name("serve_attackers.py")
    with bench.server(files) as server:
        assert server.address is not None
        command = [sys.executable, str(script), attack, *map(str, server.address)]
        attackers = subprocess.Popen(command)
        try:
            time.sleep(2)
            times, took = asyncio.run(under_attack(server.address, seconds))
            ended = end(server)
        finally:
            attackers.kill()
            attackers.wait()
    answered = HONEST - took.count(float("inf"))
    return (
        f"/health p99 {quantile(times, 0.99)}; {answered} of {HONEST} answered, "
        f"median {quantile(took, 0.5)}; ends {ended}"
    )


LOADS: dict[str, tuple[str, int | None]] = {
    "none": ("nothing", None),
    "64 clients that never read": ("never_reading", None),
    "the same, `ulimit -n 128`": ("never_reading", 128),
    "1,500 dripping connections": ("dripping", None),
    "12 bodies at a time of a million lists": ("empty_lists", None),
    "12 bodies at a time of a million quotes": ("quotes", None),
    "8 texts at a time that make the tokenizer panic": ("panics", None),
}

# --- attacks on what it answers ------------------------------------------------------------------


def fill_with_nan(weights: Path) -> None:
    """In place, as a copy over the file would do it."""
    header = 8 + int.from_bytes(weights.read_bytes()[:8], "little")
    with open(weights, "r+b") as file:
        file.seek(header)
        file.write(b"\xff" * (weights.stat().st_size - header))


def foreign_page(bench: Bench) -> str:
    with bench.server() as server:
        status, _ = server.asked(get("/tasks", "evil.example"))
        _, moved = server.asked(get("/tasks/", "evil.example"))
    read = "reads /tasks" if status == 200 else f"gets {status}"
    return read + (", and is redirected to its own name" if b"//evil.example" in moved else "")


def same_panic(bench: Bench) -> str:
    with bench.server() as server:
        statuses = [str(server.asked(texts(CURSE))[0] or "nothing") for _ in range(4)]
        ready, answered = server.asked(get("/ready"))[0], server.asked(texts(TEXT))[0]
    others = "answered" if answered == 200 else "not answered"
    return f"gets {', '.join(statuses)}; then /ready says {ready}, other texts are {others}"


def overwritten(bench: Bench) -> str:
    with bench.server() as server:
        first = server.asked(texts(TEXT))[1].splitlines()[-1]
        fill_with_nan(server.model / "model.safetensors")
        status, answer = server.asked(texts(TEXT))
        same = answer.splitlines()[-1:] == [first]
        os.truncate(server.model / "model.safetensors", 0)
        server.asked(texts(TEXT))
        time.sleep(1)
        code = server.process.poll()
    changed = "answers as before" if same else f"{status}: {shown(answer)}"
    return changed if code is None else f"{changed}; when it is cut, ends with {code}"


def damaged(bench: Bench) -> str:
    with bench.server(damage=True) as server:
        if not server.address:
            return f"does not start (exit code {server.process.wait()})"
        status, answer = server.asked(texts(TEXT))
    return f"{status}: {shown(answer)}"


def shown(answer: bytes) -> str:
    return f"`{answer.splitlines()[-1].decode()[:70]}...`" if answer else "nothing"


CHECKS = {
    "a page whose name leads here (DNS rebinding)": foreign_page,
    "one text that panics, four times": same_panic,
    "its weights' file overwritten with NaN, then cut": overwritten,
    "weights that are NaN": damaged,
}


def small_model(folder: Path) -> Path:
    sys.path.insert(0, str(ROOT))
    from tests import serving

    return serving.model().save(folder / "model")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=15, help="of each attack")
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    parser.add_argument("--path", default=f"{ROOT / 'src'}:{ROOT}", help="a server's import path")
    parser.add_argument("--model", type=Path, help="a model that a server of that path can load")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(asked.model or small_model(Path(place)), asked.path, Path(place))
        print("| attack | before | after |\n|---|---|---|")
        for name in (*LOADS, *CHECKS):
            if asked.only in name:
                load = LOADS.get(name)
                told = outlast(bench, *load, asked.seconds) if load else CHECKS[name](bench)
                print(f"| {name} | {BEFORE.get(name, '')} | {told} |", flush=True)


if __name__ == "__main__":
    main()
