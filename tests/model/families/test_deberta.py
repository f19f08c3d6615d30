"""DeBERTa-v3's own parts: buckets of distances, and attention in which they take part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Model,
    build_relative_position,
)

from bough.model import pretrained
from bough.model.attention import Layout
from bough.model.dropout import DropoutGenerator
from bough.model.families.deberta import (
    DebertaEmbeddings,
    DisentangledAttention,
    skewed,
    table_rows,
)
from bough.model.network import Network
from bough.plan.family_settings import deberta_distances
from tests import tiny
from tests.plain_pass import TASKS, all_sequences, check_against_hand, gradients, weighted
from tests.reference import DEBERTA, keep, reference


@pytest.mark.parametrize(("buckets", "longest"), [(256, 512), (8, 48), (2, 5), (64, 20)])
def test_buckets_are_those_of_transformers(buckets: int, longest: int) -> None:
    rows = torch.zeros(1, longest, 4)
    wanted = build_relative_position(rows, rows, buckets, longest)[0]
    wanted = (wanted + buckets).clamp(0, 2 * buckets - 1)
    at = torch.arange(longest)
    found = table_rows(buckets, longest)[at[:, None] - at[None, :] + longest]
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(("relative", "longest"), [(512, 512), (16, 48), (4, 5), (128, 20)])
def test_what_is_counted_is_what_is_used(relative: int, longest: int) -> None:
    """By `bough plan`, which has no torch."""
    rows = table_rows(relative // 2, longest)
    for n in range(1, longest + 1):
        used = int(rows[longest + n] - rows[longest - n]) + 1
        assert deberta_distances(relative, n, longest) == used, n


def test_skewed() -> None:
    for n in (1, 2, 5):
        x = torch.randn(3, n, 2 * n)
        found = skewed(x)
        for i in range(n):
            assert torch.equal(found[:, i], x[:, i, n - 1 - i : 2 * n - 1 - i])


@pytest.mark.parametrize("padded", [False, True])
def test_parity_beyond_the_exact_buckets(
    padded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both ways to attend: bucket after bucket, and padded as on CUDA."""
    model = reference("deberta-v2", {**DEBERTA, "max_position_embeddings": 300})
    encoder = pretrained.load(str(keep(model, tmp_path)))
    pack = tiny.pack([200, 7, 61, 7])
    with torch.no_grad():
        parts = pack.tokens.split(pack.lengths)
        states = [model(part[None, :, 0]).last_hidden_state[0] for part in parts]
    if padded:
        monkeypatch.setattr(DisentangledAttention, "_by_bucket", DisentangledAttention._padded)
    places = tiny.trunk(encoder)
    found = tiny.encode(places, pack)
    torch.testing.assert_close(found, torch.cat(states), atol=1e-5, rtol=0)
    first = torch.stack([part[0] for part in states])
    torch.testing.assert_close(tiny.encode(places, pack, True), first, atol=1e-5, rtol=0)


PLANS = [
    "full",
    "row@embeddings, split@1/b+c",  # tables of several embeddings in one layer
    "separate",
    "lora:2:qkvoif, pal:4",
    "row@embeddings, lora:2:qk@1/a+b, lora:3:k@2",
    "feed~:a>b, split@1, lora:2",
    "frozen@1, lora:2:q",
]


@pytest.mark.parametrize("text", PLANS)
def test_plans_equal_the_plain_pass(text: str) -> None:
    model = network(text)
    check_against_hand(model, tiny.pack([3, 9, 4, 4]))


@pytest.mark.parametrize("text", PLANS)
def test_the_padded_pass_of_cuda_is_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, pack = network(text), tiny.pack([3, 9, 4, 4])

    def outputs() -> tuple[dict[str, Tensor], dict[str, Tensor | None]]:
        out = model(pack, all_sequences(model, 4))
        return out, gradients(model, torch.stack([weighted(o) for o in out.values()]).sum())

    wanted = outputs()
    monkeypatch.setattr(DisentangledAttention, "_by_bucket", DisentangledAttention._padded)
    found = outputs()
    torch.testing.assert_close(found[0], wanted[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[1], wanted[1], atol=1e-4, rtol=1e-3)


def network(plan: str) -> Network:
    tasks = {n: t.model_copy(update={"pooling": p}) for (n, t), p in zip(
        TASKS.items(), ("pooler", "mean", "cls"), strict=True)}  # fmt: skip
    return tiny.network(plan, tasks, tiny.encoder("deberta-v2"), stir=0.1)


def test_dropout_reaches_distances_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    places, dropout = tiny.trunk(tiny.encoder("deberta-v2")), tiny.dropout()
    embeddings = places["embeddings"]
    assert isinstance(embeddings, DebertaEmbeddings)
    drawn: list[tuple[int, ...]] = []
    keep = DropoutGenerator.keep

    def watched(self: DropoutGenerator, shape: tuple[int, ...], rate: float) -> Tensor:
        drawn.append(tuple(shape))
        return keep(self, shape, rate)

    monkeypatch.setattr(DropoutGenerator, "keep", watched)
    layout = Layout((4, 4, 6), (embeddings.position_table(),))
    places["layer 1"](torch.randn(14, 16), layout, dropout)
    assert drawn[0] == (7, 16)  # the table's rows up to a distance of 6
    assert drawn[1:3] == [(2, 4, 4, 4), (1, 4, 6, 6)]


def test_a_classifiers_pooler_is_none_of_ours(tmp_path: Path) -> None:
    """It has a GELU where our pooler has a tanh."""
    model = reference("deberta-v2", DEBERTA)
    assert isinstance(model, DebertaV2Model)
    folder = keep(model, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors |= {"pooler.dense.weight": torch.zeros(32, 32), "pooler.dense.bias": torch.zeros(32)}
    save_file(tensors, folder / "model.safetensors")
    encoder = pretrained.load(str(folder))
    assert not encoder.shape.pooler
    assert encoder.pooling.name == "cls"
    assert encoder.unused == ("pooler.dense.bias", "pooler.dense.weight")
