"""ModernBERT's own parts: turned queries and keys, and attention that sees a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from bough.model import attention, pretrained
from bough.model.attention import Layout
from bough.model.families import modernbert
from bough.model.families.modernbert import attend_nearby, rotate, within
from tests import tiny
from tests.reference import MODERNBERT, keep, reference

HEADS, WIDTH = 2, 8
CPU = torch.device("cpu")


def rows(lengths: tuple[int, ...], parts: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    made = torch.randn(sum(lengths), parts * WIDTH, generator=generator, dtype=torch.float64)
    return made.requires_grad_()


def masked(qkv: Tensor, lengths: tuple[int, ...], reach: int) -> Tensor:
    """Text by text, by torch's own attention with a mask."""
    out = []
    for text in qkv.split(lengths):
        at = torch.arange(len(text))
        near = (at[:, None] - at[None, :]).abs() <= reach
        query, key, value = text.view(len(text), 3, HEADS, -1).permute(1, 2, 0, 3)
        mixed = F.scaled_dot_product_attention(query, key, value, near)
        out.append(mixed.transpose(0, 1).flatten(1))
    return torch.cat(out)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 23), min_size=1, max_size=6), st.integers(1, 9))
def test_a_window_hides_what_is_beyond_it(lengths: list[int], reach: int) -> None:
    qkv = rows(tuple(lengths))
    found = attend_nearby(qkv, Layout(tuple(lengths)), HEADS, reach, None)
    wanted = masked(qkv, tuple(lengths), reach)
    torch.testing.assert_close(found, wanted)
    weight = torch.randn(found.shape, dtype=found.dtype)
    gradients = [torch.autograd.grad((out * weight).sum(), qkv) for out in (found, wanted)]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_dropout_in_a_window_keeps_the_expectation() -> None:
    lengths, dropout = (9, 4), tiny.dropout(rate=0.25)
    qkv, layout = rows(lengths).detach(), Layout(lengths)
    many = [attend_nearby(qkv, layout, HEADS, 2, dropout) for _ in range(2000)]
    wanted = attend_nearby(qkv, layout, HEADS, 2, None)
    torch.testing.assert_close(torch.stack(many).mean(0), wanted, atol=0.1, rtol=0)
    assert not torch.equal(many[0], wanted)


def test_short_texts_need_no_window() -> None:
    assert within(Layout((3, 1, 3)), 2)
    assert not within(Layout((3, 4)), 2)


@pytest.mark.parametrize("letters", ["qkv", "kv"])
def test_rotation_is_that_of_transformers(letters: str) -> None:
    y = rows((5, 3), len(letters)).detach().float()
    angles = torch.randn(8, WIDTH // HEADS // 2, generator=torch.Generator().manual_seed(1))
    cos, sin = angles.cos(), angles.sin()
    found = rotate(y, cos[:, None, None], sin[:, None, None], HEADS, letters)
    *turning, value = y.view(8, len(letters), HEADS, -1).permute(1, 2, 0, 3)
    both = [torch.cat([x, x], -1)[None] for x in (cos, sin)]
    wanted = [apply_rotary_pos_emb(x[None], x[None], *both)[0][0] for x in turning]
    parts = torch.stack([*wanted, value]).permute(2, 0, 1, 3)
    torch.testing.assert_close(found, parts.flatten(1))


def test_what_a_layout_gives_is_made_once_for_all_layers_of_a_kind() -> None:
    layout = Layout((3, 9))
    places = tiny.trunk(tiny.encoder("modernbert", layers=4, local=(2, 3, 4)))
    h = torch.randn(12, 16)
    for n in range(1, 5):
        h = places[f"layer {n}"](h, layout, None)
    kept = layout.on(CPU)._kept
    assert len(kept) == 3  # the turns of two bases, one mask


def test_long_texts_cost_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local layer makes no scores between all tokens of a text."""
    layer = tiny.trunk(tiny.encoder("modernbert", window=64))["layer 2"]
    largest = 0
    softmax = torch.softmax

    def watched(scores: Tensor, *more: Any) -> Tensor:
        nonlocal largest
        largest = max(largest, scores.numel())
        return softmax(scores, *more)

    monkeypatch.setattr(torch, "softmax", watched)
    with torch.no_grad():
        out = layer(torch.randn(8192, 16), Layout((8192,)), None)
    assert out.isfinite().all()
    assert largest == 4 * 8192 * 3 * 32


@pytest.mark.parametrize("layers", [3, 4])  # the last layer is local, or sees all
def test_parity_beyond_the_window_in_the_padded_pass_of_cuda(
    layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**MODERNBERT, "num_hidden_layers": layers, "max_position_embeddings": 300}
    model = reference("modernbert", settings)
    encoder = pretrained.load(str(keep(model, tmp_path)))
    assert encoder.shape.longest == 300
    pack = tiny.pack([200, 7, 61, 7])
    with torch.no_grad():
        states = [
            model(part[None, :, 0]).last_hidden_state[0] for part in pack.tokens.split(pack.lengths)
        ]
    places = tiny.trunk(encoder)
    wanted = torch.cat(states)
    torch.testing.assert_close(tiny.encode(places, pack), wanted, atol=1e-5, rtol=0)

    def padded(*given: Any) -> Tensor:
        return attention.attend_padded(*given, *[None] * (5 - len(given)))

    monkeypatch.setattr(attention, "attend", padded)
    torch.testing.assert_close(tiny.encode(places, pack), wanted, atol=1e-5, rtol=0)
    first = torch.stack([part[0] for part in states])
    torch.testing.assert_close(tiny.encode(places, pack, True), first, atol=1e-5, rtol=0)


def test_a_layer_drops_in_both_halves() -> None:
    places = tiny.trunk(tiny.encoder("modernbert"))
    layout = Layout((4, 9))
    ids = tiny.pack(layout.lengths).tokens.unbind(1)
    plain = places["embeddings"](*ids, None)
    assert (places["embeddings"](*ids, tiny.dropout()) == 0).any()
    for name in ("layer 1", "layer 2"):
        whole = places[name](plain, layout, None)
        assert torch.equal(places[name](plain, layout, tiny.dropout(rate=0.0)), whole)
        assert not torch.equal(places[name](plain, layout, tiny.dropout()), whole)
    assert isinstance(places["layer 2"], modernbert.ModernBertLayer)
