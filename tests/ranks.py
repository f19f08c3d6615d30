"""Processes that work together, as `torchrun` would start them, but on one file: quick to start.

python -m tests.ranks COUNT RANK FOLDER MODULE:FUNCTION
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import traceback
from pathlib import Path

from tests.command import QUIET

ROOT = Path(__file__).parent.parent


def together(count: int, folder: Path, work: str) -> None:
    """Call `work`, a module's function, with the folder in so many processes of one group."""
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-m", "tests.ranks", str(count)]
    workers = [
        subprocess.Popen([*words, str(rank), str(folder), work], cwd=ROOT, env=QUIET)
        for rank in range(count)
    ]
    try:
        codes = [worker.wait(timeout=300) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert codes == [0] * count


def main(count: int, rank: int, folder: Path, work: str) -> None:
    import torch
    import torch.distributed.nn  # before there is a group, as in `bough.distributed`
    from torch import distributed
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    torch.set_num_threads(1)
    store = FileStore(str(folder / "store"), count)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=count)
    module, _, function = work.partition(":")
    try:
        getattr(importlib.import_module(module), function)(folder)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
