"""Kept states: the same training as without them, found again, keyed by weights and texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bough.batches import Examples, collate
from bough.network import Network
from bough.rows import Rows
from bough.states import States

from . import tiny

TEXTS = [("the old tree",), ("is green and the leaf was not bright",), ("who",), ("a bough",)]
PAIRS = [("the tree", "the old tree"), ("one root", "two"), ("a", "b"), ("slow film", "bad")]


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
    kept = {name: states.of(name, e) for name, e in own.items()}
    chosen = {name: np.array([2, 0, 3]) for name in own}
    outputs, gradients = [], []
    for source in (own, kept):
        batch = collate(source, chosen)
        network.zero_grad(set_to_none=True)
        out = network(batch.pack, batch.seats)
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
    network(batch.pack, batch.seats)
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
    first = states.of("one", own["one"]).reached[0].rows
    with torch.no_grad():
        for parameter in network.cells["layer1/all"].parameters():
            parameter += 0.1
    second = States(network, tmp_path).of("one", own["one"]).reached[0].rows
    assert not torch.allclose(first, second)
    assert len(list(tmp_path.glob("*.json"))) == 2
    States(network, tmp_path).of("three", own["three"])
    assert len(list(tmp_path.glob("*.json"))) == 3


def test_room_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, own, states = both("frozen@1", tmp_path)
    monkeypatch.setenv("BOUGH_CACHE_GB", "3e-6")  # 3,000 bytes: one of the sets fits
    for name, e in own.items():
        assert states.of(name, e).reached
        size = sum(file.stat().st_size for file in tmp_path.glob("*.npy"))
        assert size <= 4000


def test_a_damaged_file_is_computed_anew(tmp_path: Path) -> None:
    _, own, states = both("frozen", tmp_path)
    whole = states.of("one", own["one"]).reached[0].rows
    for file in tmp_path.glob("*-0.npy"):
        file.write_bytes(b"rubbish")
    torch.testing.assert_close(states.of("one", own["one"]).reached[0].rows, whole)


def test_nothing_to_keep_where_everything_learns(tmp_path: Path) -> None:
    for plan in ("full", "frozen@0", "pal:8", "frozen, lora:2"):
        assert not both(plan, tmp_path)[2].worth
