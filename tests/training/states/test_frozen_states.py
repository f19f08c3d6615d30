"""Kept states: the same training as without them, found again, keyed by weights and texts."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bough.data import packing
from bough.data.checked_rows import Rows
from bough.data.examples import Examples
from bough.data.packing import by_tokens, collate
from bough.model.forward import PackedForward
from bough.model.network import Network
from bough.training.states import frozen_states
from bough.training.states.frozen_states import States
from tests import tiny

TEXTS: list[tuple[str, ...]] = [
    ("the old tree",),
    ("is green and the leaf was not bright",),
    ("who",),
    ("a bough",),
]
PAIRS: list[tuple[str, ...]] = [
    ("the tree", "the old tree"),
    ("one root", "two"),
    ("a", "b"),
    ("slow film", "bad"),
]


def examples(network: Network) -> dict[str, Examples]:
    out = {}
    for name, task in network.tasks.items():
        texts = PAIRS if task.paired else TEXTS
        rows = Rows(texts, [0, 1, 0, 1], ["a", "b", "c", "d"], "memory", [1, 2, 3, 4])
        out[name] = Examples.of(task, rows, tiny.tokenizer(), 30)
    return out


def both(plan: str, folder: Path, **settings: bool) -> tuple[Network, dict[str, Examples], States]:
    tasks = {"one": tiny.task(), "two": tiny.task(twin=True), "three": tiny.task(joint=True)}
    tasks = {n: t.model_copy(update=settings) for n, t in tasks.items()}
    network = tiny.network(plan, tasks, tiny.encoder(layers=3), stir=0.05)
    return network, examples(network), States(network, folder)


@pytest.mark.parametrize(
    "plan",
    ["frozen", "frozen, late:IS", "frozen@1", "frozen@2, split@1", "frozen@2, feed:one>two",
     "frozen, separate", "frozen@1, separate, feed~:one>two", "frozen@1, pal:8@2-3"],
)  # fmt: skip
def test_kept_states_change_nothing(plan: str, tmp_path: Path) -> None:
    network, own, states = both(plan, tmp_path)
    assert states.worth
    kept = states.of_all(own)
    for name, e in kept.items():  # known before anything is computed
        assert states.size(name, own[name]) == sum(states_of.rows.nbytes for states_of in e.cached)
    chosen = {name: np.array([2, 0, 3]) for name in own}
    outputs, gradients = [], []
    for source in (own, kept):
        batch = collate(source, chosen)
        network.zero_grad(set_to_none=True)
        out = network(batch.pack, batch.index)
        torch.cat([o.flatten() for o in out.values()]).square().sum().backward()
        outputs.append(out)
        gradients.append({n: p.grad for n, p in network.named_parameters()})
    for name in own:
        torch.testing.assert_close(outputs[1][name], outputs[0][name], atol=1e-5, rtol=1e-5)
    for name, gradient in gradients[0].items():
        assert (gradient is None) == (gradients[1][name] is None), name
        if gradient is not None:
            torch.testing.assert_close(gradients[1][name], gradient, atol=1e-4, rtol=1e-4)


def test_fixed_rows_are_not_walked_again(tmp_path: Path) -> None:
    network, own, states = both("frozen", tmp_path)
    kept = {name: states.of(name, e) for name, e in own.items()}
    calls = []
    for key, cell in network.cells.items():
        cell.register_forward_hook(lambda *_, key=key: calls.append(key))
    batch = collate(kept, {name: np.arange(4) for name in kept})
    network(batch.pack, batch.index)
    assert all(key.startswith("head") for key in calls)


def test_found_again_by_another_network_of_the_same_trunk(tmp_path: Path) -> None:
    _, own, states = both("frozen", tmp_path)
    states.of("one", own["one"])
    files = sorted(tmp_path.iterdir())
    _, _, again = both("frozen, late:I", tmp_path)  # another plan, the same fixed part
    again.of("one", own["one"])
    assert sorted(tmp_path.iterdir()) == files


def test_other_weights_or_texts_are_other_states(tmp_path: Path) -> None:
    network, own, states = both("frozen", tmp_path)
    first = states.of("one", own["one"]).cached[0].rows
    with torch.no_grad():
        for parameter in network.cells["layer1/all"].parameters():
            parameter.add_(0.1)
    second = States(network, tmp_path).of("one", own["one"]).cached[0].rows
    assert not torch.allclose(first, second)
    assert len(list(tmp_path.glob("*.json"))) == 2
    States(network, tmp_path).of("three", own["three"])
    assert len(list(tmp_path.glob("*.json"))) == 3


def test_room_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, own, states = both("frozen@1", tmp_path)
    monkeypatch.setenv("BOUGH_CACHE_GB", "3e-6")  # 3,000 bytes: one of the sets fits
    for name, e in own.items():
        assert states.of(name, e).cached
        size = sum(file.stat().st_size for file in tmp_path.glob("*.npy"))
        assert size <= 4000


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    "damage",
    [lambda whole: b"rubbish", lambda whole: b"", lambda whole: whole[:40],
     lambda whole: whole[:-4], None],
)  # fmt: skip
def test_a_damaged_file_is_computed_anew(
    mapped: bool,
    damage: Callable[[bytes], bytes] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if mapped:
        monkeypatch.setattr(frozen_states, "IN_MEMORY", 0)
    _, own, states = both("frozen", tmp_path)
    whole = states.of("one", own["one"]).cached[0].rows.clone()
    (file,) = tmp_path.glob("*-0.npy")
    if damage is None:  # whole, but of fewer texts
        np.save(file, whole[:-1].numpy())
    else:
        file.write_bytes(damage(file.read_bytes()))
    torch.testing.assert_close(states.of("one", own["one"]).cached[0].rows, whole)
    assert np.load(file).shape == whole.shape


def test_large_states_are_computed_where_they_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, own, states = both("frozen@2, split@1, feed:one>two", tmp_path / "mapped")
    plain = States(states.network, tmp_path / "plain").of_all(own)
    monkeypatch.setattr(frozen_states, "IN_MEMORY", 0)
    monkeypatch.setattr(packing, "by_tokens", partial(by_tokens, budget=8))
    files: list[set[int]] = []

    def run(forward: PackedForward, last: int) -> Any:
        found = tmp_path.glob("mapped/.*.part")
        files.append({file.stat().st_size for file in found})
        return walked(forward, last)

    walked = PackedForward.run
    monkeypatch.setattr(PackedForward, "run", run)
    kept = states.of_all(own)
    assert files.count(set()) == 3, "from a set's second part on, its file is there"
    for name, e in kept.items():
        assert len(e.cached) == len(plain[name].cached)
        for one, other in zip(e.cached, plain[name].cached, strict=True):
            assert (one.task_uses, one.origin) == (other.task_uses, other.origin)
            torch.testing.assert_close(one.rows, other.rows)
            assert np.array_equal(one.bounds, other.bounds)
            assert one.rows.nbytes + 128 in set().union(*files), "at its full size"
    assert not list(tmp_path.glob("mapped/.*"))
    assert len(list(tmp_path.glob("mapped/*.json"))) == 3


def test_without_room_nothing_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, own, states = both("frozen@1", tmp_path)
    sizes = {name: states.size(name, e) for name, e in own.items()}
    monkeypatch.setattr(frozen_states, "IN_MEMORY", 100)
    monkeypatch.setattr(PackedForward, "run", None)
    monkeypatch.setenv("BOUGH_CACHE_GB", str((min(sizes.values()) - 1) / 1e9))
    for name, e in own.items():
        assert states.of(name, e) is e
    # Tasks are trained in one batch: what one alone has room for is not kept without the others.
    monkeypatch.setenv("BOUGH_CACHE_GB", str((sum(sizes.values()) - 1) / 1e9))
    assert states.of_all(own) == own
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    _, own, states = both("frozen", tmp_path / "file" / "states")
    assert all(e.cached for e in states.of_all(own).values()), "small ones stay in memory"
    monkeypatch.setattr(frozen_states, "IN_MEMORY", 0)
    assert states.of_all(own) == own
    _, own, states = both("frozen", tmp_path)

    def full(number: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert states.of_all(own) == own
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_nothing_to_keep_where_everything_learns(tmp_path: Path) -> None:
    for plan in ("full", "frozen@0", "pal:8", "frozen, lora:2"):
        assert not both(plan, tmp_path)[2].worth
