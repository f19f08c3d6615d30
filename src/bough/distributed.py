"""The processes that train one run together: which of them this is, and what they tell each other.

`torchrun` starts them and says by the environment who is who. All of them hold the same weights and
decide alike; the first one writes and speaks. A process alone asks nobody, at no cost. Whatever
goes from one to another goes through here, is counted, and is numbers or text, never pickle.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from bough.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

NAMED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# A process that is gone is noticed at once, by its closed connection. This is for one that is at
# work for all: it computes kept states, or intervals of the final scores.
PATIENCE = timedelta(hours=12)
ASKED = timedelta(seconds=10)  # to be told who speaks


class PeerLostError(Exception):
    """Another process of the run does not answer any more."""


@dataclass
class Processes:
    """This process among those of a run; by default alone."""

    rank: int = 0
    count: int = 1
    exchanged: int = 0  # bytes that this process gave to be added up with the others'

    @property
    def first(self) -> bool:
        """Whether this one writes and speaks."""
        return self.rank == 0

    def share(self, numbers: T, turn: int = 0) -> T:
        """This process's part of what all of them know: every one of `numbers` is in exactly one
        part. Those of similar size, which stand together, are dealt out; `turn` says who gets the
        first, so that not always the same process has one more."""
        part: T = numbers[(self.rank - turn) % self.count :: self.count]  # type: ignore[index]
        return part

    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum of all processes' tensors, in place; the same bits in all of them."""
        return self._reduce(tensor, "SUM")

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest of each number, in place."""
        return self._reduce(tensor, "MAX")

    def _reduce(self, tensor: Tensor, operation: str) -> Tensor:
        if self.count > 1:
            from torch import distributed

            _asking(distributed.all_reduce, tensor, op=getattr(distributed.ReduceOp, operation))
            self.exchanged += tensor.nbytes
        return tensor

    def sums(self, numbers: Sequence[float]) -> list[float]:
        """Each number added up over the processes."""
        if self.count == 1 or not numbers:
            return list(numbers)
        import torch

        return [float(x) for x in self.add_up(torch.tensor(numbers, dtype=torch.float64))]

    def first_says(self, number: float) -> float:
        """The first process's number, for all: what a clock says is not the same everywhere."""
        return self.sums([number if self.first else 0.0])[0]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every process's tensor, in the order of the ranks; all have the same shape."""
        if self.count == 1:
            return [tensor]
        import torch
        from torch import distributed

        every = [torch.empty_like(tensor) for _ in range(self.count)]
        _asking(distributed.all_gather, every, tensor)
        return every

    def hand_out(self, tensors: Iterable[Tensor]) -> None:
        """The first process's tensors to all, in place."""
        if self.count > 1:
            from torch import distributed

            for tensor in tensors:
                _asking(distributed.broadcast, tensor, 0)

    def hand_out_bytes(self, content: bytes) -> bytes:
        """The first process's bytes to all."""
        if self.count == 1:
            return content
        import torch

        size = torch.tensor([len(content)])
        self.hand_out([size])
        buffer = torch.empty(int(size), dtype=torch.uint8)
        if self.first and content:
            buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self.hand_out([buffer])
        return buffer.numpy().tobytes()

    def agree_on(self, content: dict[str, Any]) -> dict[str, Any]:
        """What JSON can say of it, the first process's for all, to the last bit."""
        if self.count == 1:
            return content
        told: dict[str, Any] = json.loads(self.hand_out_bytes(json.dumps(content).encode()))
        return told

    @contextmanager
    def first_ahead(self) -> Iterator[None]:
        """The first process does this before the others: they find on disk what it leaves."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def wait(self) -> None:
        """Until all are here."""
        self.sums([0.0])

    def device(self, name: str) -> str:
        """On a machine with several GPUs each of its processes has its own."""
        if self.count == 1:
            return name
        import torch

        if name == "mps":
            raise UserError("device is 'mps', which cannot train over several processes; use cpu")
        if name == "cuda" or (name == "auto" and torch.cuda.is_available()):
            return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        return name


ALONE = Processes()


@contextmanager
def joined() -> Iterator[Processes]:
    """This process together with the others that `torchrun` started with it, or alone.

    A group that the caller has made (`torch.distributed.init_process_group`) is used as it is.
    """
    from torch import distributed

    if not distributed.is_available() or not (distributed.is_initialized() or _launched()):
        yield Processes()
        return
    own = not distributed.is_initialized()
    if own:
        _asking(_join)
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    except PeerLostError:
        # Its starter ends the others, too; but first one of them says what happened.
        if own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    except BaseException:
        if own:  # before the others notice that this one leaves, and say only that
            speaks()
        raise
    finally:
        if own:
            distributed.destroy_process_group()


def launched_rank() -> int:
    """By the environment: 0 in a process that was not started together with others."""
    return int(os.environ["RANK"]) if _launched() else 0


def launched_count() -> int:
    """How many were started together, this one among them."""
    return int(os.environ["WORLD_SIZE"]) if _launched() else 1


def restarted() -> bool:
    """Whether `torchrun --max-restarts` has started these processes anew after one had failed."""
    return _launched() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def environment_alone() -> dict[str, str]:
    """The environment for a process that is started from here and works alone."""
    return {name: value for name, value in os.environ.items() if name not in NAMED}


def speaks() -> bool:
    """Whether this process tells why the run ended: of those started together, the first to ask."""
    if not _launched():
        return True
    name = os.environ["RANK"]
    try:
        told = _store(ASKED).compare_set("speaks", "", name)
    except RuntimeError:  # better said twice than never
        return True
    return bool(told.decode() == name)


def _launched() -> bool:
    return all(name in os.environ for name in NAMED) and int(os.environ["WORLD_SIZE"]) > 1


def _join() -> None:
    import torch

    # Before there is a group: defaults of its functions would keep the group beyond its end, and
    # its threads would let go of their tensors while the interpreter ends, which aborts it.
    import torch.distributed.nn
    from torch import distributed

    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=_store(PATIENCE, host=rank == 0),
        rank=rank,
        world_size=count,
        timeout=PATIENCE,
    )


def _store(timeout: timedelta, host: bool = False) -> Any:
    """Where processes leave word for each other. `torchrun` keeps it, also when it starts them
    anew; so each attempt has its own words, or they would look for those that are gone."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        address, port, is_master=host and not kept, timeout=timeout, wait_for_workers=False
    )
    return PrefixStore(f"bough/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _asking(call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    try:
        call(*arguments, **options)
    except RuntimeError as error:
        reason = re.sub(r"^\[.*?\] ?", "", str(error).partition("\n")[0]).partition(". ")[0]
        raise PeerLostError(f"another process of this run is gone ({reason})") from error
