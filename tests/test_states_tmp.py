"""States that are computed once give the same outputs and gradients as walking all the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bough.batches import Examples, collate
from bough.encoder import Encoder
from bough.network import Network
from bough.rows import Rows
from bough.states import States

from . import tiny

TASKS = {
    "a": tiny.task(dropout=0.0),
    "b": tiny.task(number=True, pooling="mean"),
    "c": tiny.task(twin=True, labels=("no", "yes"), pooling="cls"),
}
PLANS = [
    "frozen",
    "frozen@1",
    "frozen@1, separate",
    "frozen@1, split@0, row@embeddings",
    "frozen, late:SI",
    "frozen, pal:4@2",
    "frozen@2, split@1, feed~:a>b, feed:a>c",
    "frozen@1, split@1, feed:a>b, lora:2@2",
]


def examples(encoder: Encoder) -> dict[str, Examples]:
    rng = np.random.default_rng(0)
    made = {}
    for name, task in TASKS.items():
        texts: list[tuple[str, ...]] = [
            tuple(" ".join(rng.choice(tiny.WORDS, rng.integers(1, 9))) for _ in task.columns)
            for _ in range(9)
        ]
        rows = Rows(texts, [i % 2 for i in range(9)], [""] * 9, "memory", list(range(9)))
        made[name] = Examples.of(task, rows, encoder.tokenizer, 40)
    return made


def run(model: Network, data: dict[str, Examples]) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    chosen = {"b": np.array([3, 8, 0]), "a": np.array([5, 5, 1, 2]), "c": np.array([7, 4])}
    batch = collate(data, chosen)
    outputs = model(batch.pack, batch.seats)
    flat = torch.cat([outputs[name].flatten() for name in chosen])
    learning = [p for p in model.parameters() if p.requires_grad]
    return flat, list(torch.autograd.grad(flat.square().sum(), learning, allow_unused=True))


@pytest.mark.parametrize("family", ["bert", "mpnet", "electra"])
@pytest.mark.parametrize("text", PLANS)
def test_known_states_change_nothing(text: str, family: str, tmp_path: Path) -> None:
    encoder = tiny.encoder(family)
    model = tiny.network(text, TASKS, encoder, stir=0.1)
    data = examples(encoder)
    states = States(model, tmp_path)
    assert states.worth
    wanted = run(model, data)
    for _ in range(2):  # computed, then found
        known = {name: states.of(name, own) for name, own in data.items()}
        assert all(own.reached for own in known.values())
        found = run(model, known)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        batch = collate(known, {"a": np.arange(9)})
        plain = collate(data, {"a": np.arange(9)})
        torch.testing.assert_close(
            model(batch.pack, batch.seats), model(plain.pack, plain.seats), atol=1e-5, rtol=1e-4
        )


def test_states_belong_to_their_weights_and_texts(tmp_path: Path) -> None:
    encoder = tiny.encoder()
    model = tiny.network("frozen", TASKS, encoder)
    data = examples(encoder)
    before = States(model, tmp_path).of("a", data["a"]).reached[0].rows
    with torch.no_grad():
        model.cells["layer1/all"].get_parameter("out.bias").add_(1)
    after = States(model, tmp_path).of("a", data["a"]).reached[0].rows
    assert not torch.allclose(before, after)
    model.cells["head/a"].get_parameter("output.bias").data.add_(1)  # no part of them
    files = set(tmp_path.iterdir())
    States(model, tmp_path).of("a", data["a"])
    assert set(tmp_path.iterdir()) == files
