"""The processes of a run: everything is shared out once, and one of them speaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bough.distributed import (
    ALONE,
    PeerLostError,
    Processes,
    environment_alone,
    joined,
    launched_rank,
    restarted,
)
from bough.errors import UserError
from tests.ranks import together


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [0, 1, 3, 8, 100])
def test_nothing_is_lost_and_nothing_dealt_twice(count: int, size: int) -> None:
    numbers = np.arange(size)
    for turn in range(3):
        parts = [Processes(rank, count).share(numbers, turn) for rank in range(count)]
        assert sorted(np.concatenate(parts).tolist()) == list(range(size))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_alone_nobody_is_asked() -> None:
    assert ALONE.first
    assert ALONE.sums([1.0, 2.0]) == [1.0, 2.0]
    assert ALONE.hand_out_bytes(b"x") == b"x"
    assert ALONE.gather(torch.ones(2))[0].tolist() == [1, 1]
    with ALONE.first_ahead():
        ALONE.wait()
    assert ALONE.device("mps") == "mps"
    assert ALONE.exchanged == 0


def test_who_was_started_by_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched_rank() == 0
    assert not restarted()
    names = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert launched_rank() == 1
    assert not restarted()
    assert not names.keys() & environment_alone().keys()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert restarted()
    monkeypatch.setenv("WORLD_SIZE", "1")  # alone, though by torchrun
    assert not restarted()


def test_what_cannot_be_spread() -> None:
    with pytest.raises(UserError, match="several processes"):
        Processes(1, 2).device("mps")


def talk(folder: Path) -> None:
    """What each of two processes does; the second leaves early."""
    with joined() as processes:
        rank = processes.rank
        assert processes.count == 2
        assert processes.sums([1.0 + rank, 5.0]) == [3.0, 10.0]
        assert processes.exchanged == 16
        assert processes.first_says(7.0 if rank == 0 else 9.0) == 7.0
        assert processes.largest(torch.tensor([rank, 1 - rank])).tolist() == [1, 1]
        assert processes.hand_out_bytes(b"abc" if rank == 0 else b"") == b"abc"
        assert processes.hand_out_bytes(b"") == b""
        assert [t.tolist() for t in processes.gather(torch.tensor([rank]))] == [[0], [1]]
        with processes.first_ahead():
            if rank == 0:
                (folder / "made").write_text("by the first")
            assert (folder / "made").read_text() == "by the first"
    if rank == 0:
        with pytest.raises(PeerLostError, match="another process of this run is gone"):
            processes.add_up(torch.ones(3))


def test_two_talk_until_one_is_gone(tmp_path: Path) -> None:
    together(2, tmp_path, "tests.test_distributed:talk")
