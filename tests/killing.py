"""Kill `bough train` again and again: python -m tests.killing FOLDER HOW RECIPE KILLS SEED

HOW is `random`, at any moment; `ranks`, the same for one or both of two processes that train
together; or `files`, as files are written. Every process is a fork of this one, which has only
imported what a run needs: so a process starts its work at once, and the moment of its death is
anywhere in a run rather than in an import. Prints the names of the folders whose runs came to
their end, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import scipy.stats
import sklearn.metrics
import torch

from bough.cli import main
from bough.inference.load import load
from bough.pretraining import pretrain
from bough.runs.run_dir import Run
from bough.training import train

assert scipy.stats is not None
assert sklearn.metrics is not None
assert train is not None
assert pretrain is not None


def fork(work: Callable[[], object]) -> int:
    """The child's process number; it ends with exit code 0 if the work did."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def bough(*words: str) -> Callable[[], object]:
    def work() -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        sys.argv = ["bough", *words]
        main.main()

    return work


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def readable(folder: Path) -> None:
    """Whatever is in the run directory can be read, and the model answers."""
    run = Run.open(folder)
    assert all("step" in entry for entry in run.metrics())
    if run.checkpoint.exists():
        torch.load(run.checkpoint, weights_only=True)
        assert run.environment
    if run.pretrained:
        return
    if run.checkpoint.exists():
        assert run.plan
    if (run.model / "model.safetensors").exists():
        assert load(folder).predict("A fine film.")
    if run.finished:
        assert run.scores["dev"]["raw"] is not None
        assert run.cost


def command(recipe: str, folder: Path) -> tuple[str, ...]:
    """The verb is what the recipe is about."""
    verb = "pretrain" if "pretraining" in Path(recipe).read_text() else "train"
    if (folder / "recipe.yaml").exists():
        return (verb, "--resume", str(folder))
    return (verb, recipe, "-o", str(folder))


def over(folder: Path) -> bool:
    """Whether it had come to its end, if it was killed then: there is nothing to resume."""
    return (folder / "scores.json").exists()


def started(words: tuple[str, ...], count: int) -> list[int]:
    """The processes of one run, as `torchrun` would start them."""
    if count == 1:
        return [fork(bough(*words))]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def work(rank: int) -> None:
        os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
        bough(*words)()

    return [fork(partial(work, rank)) for rank in range(count)]


def at_random(root: Path, recipe: str, kills: int, seed: int, count: int = 1) -> list[str]:
    """Death at any moment; runs that come to their end are followed by another one."""
    chance = random.Random(seed)
    began = time.monotonic()
    whole = root / "whole"
    assert set(map(ended, started(command(recipe, whole), count))) == {0}
    longest = 0.7 * (time.monotonic() - began)
    finished = []
    number = 0
    while kills or (root / f"run{number}").exists():
        folder = root / f"run{number}"
        children = started(command(recipe, folder), count)
        if kills:
            time.sleep(chance.uniform(0, longest))
            for child in chance.sample(children, chance.randint(1, count)):
                os.kill(child, signal.SIGKILL)
        codes = set(map(ended, children))
        if -signal.SIGKILL in codes:
            kills -= 1
        else:
            assert codes == {0}, codes
        if over(folder):
            finished.append(folder.name)
            number += 1
        if (folder / "recipe.yaml").exists():
            assert ended(fork(lambda folder=folder: readable(folder))) == 0  # type: ignore[misc]
    return finished


def at_files(root: Path, recipe: str, kills: int, seed: int) -> list[str]:
    """Death just before or after some of the steps in which files come to be."""

    def dying(at: int, words: tuple[str, ...], told: Path) -> Callable[[], object]:
        calls = 0

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object) -> object:
                nonlocal calls
                calls += 1
                told.write_text(str(calls))
                if calls == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments)

            return call

        def work() -> None:
            os.fsync = counted(os.fsync)  # type: ignore[assignment]
            os.replace = counted(os.replace)  # type: ignore[assignment]
            os.truncate = counted(os.truncate)  # type: ignore[assignment]
            bough(*words)()

        return work

    count = root / "count"
    assert ended(fork(dying(0, command(recipe, root / "whole"), count))) == 0
    finished = []
    moments = random.Random(seed).sample(range(1, int(count.read_text()) + 1), kills)
    for moment in sorted(moments):
        folder = root / f"run{moment}"
        code = ended(fork(dying(moment, command(recipe, folder), root / "other")))
        assert code == -signal.SIGKILL, code
        if (folder / "recipe.yaml").exists():
            assert ended(fork(lambda folder=folder: readable(folder))) == 0  # type: ignore[misc]
        assert over(folder) or ended(fork(bough(*command(recipe, folder)))) == 0
        finished.append(folder.name)
    return finished


if __name__ == "__main__":
    where, how, recipe, kills, seed = sys.argv[1:]
    words = (Path(where), recipe, int(kills), int(seed))
    if how == "files":
        print(json.dumps(at_files(*words)))
    else:
        print(json.dumps(at_random(*words, count=2 if how == "ranks" else 1)))
