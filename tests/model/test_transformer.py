"""The trunk equals transformers, for every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from bough.data.packing import Pack
from bough.data.tokens import tokenise
from bough.model import pretrained
from bough.model.attention import Layout
from bough.model.families.weight_names import expected
from bough.model.pretrained import Encoder
from bough.model.transformer import Embeddings, Layer, mean_of_texts
from bough.plan.encoder_shape import FAMILIES, Shape
from tests import tiny
from tests.reference import MODELS, keep, reference

TEXTS: list[tuple[str, ...]] = [
    ("the tree is green",),
    ("who",),
    ("a leaf was on the bough", "the root was under the tree"),
    ("very old tree is bad",),
    ("the film was slow",),
    tuple(" ".join(tiny.WORDS[i : i + 19]) for i in (0, 9)),
    ("what does grow", "where does the leaf fall"),
]


def packed(encoder: Encoder, texts: list[tuple[str, ...]] = TEXTS) -> Pack:
    sequences, cut = tokenise(texts, encoder.tokenizer, encoder.shape.longest)
    assert not cut.any()
    return Pack.of([(sequences, torch.arange(len(sequences)).numpy())])


def one_by_one(
    model: transformers.PreTrainedModel, pack: Pack, types: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The states of all tokens, and the pooler's outputs, as transformers has them."""
    states, pooled = [], []
    for tokens in pack.tokens.split(pack.lengths):
        ids, segments, _ = tokens.T.unsqueeze(1)
        out = model(ids, **({"token_type_ids": segments} if types else {}))
        states.append(out.last_hidden_state[0])
        if out.get("pooler_output") is not None:
            pooled.append(out.pooler_output[0])
    return torch.cat(states), torch.stack(pooled) if pooled else None


def assert_close_gradients(
    places: nn.ModuleDict, model: transformers.PreTrainedModel, shape: Shape
) -> None:
    theirs = dict(model.named_parameters())
    compared = set()
    for name, sources in expected(shape).items():
        place, rest = name.split(".", 1)
        if place not in places:
            continue
        ours = places[place].get_parameter(rest).grad
        wanted = torch.cat([grad for s in sources if (grad := theirs[s].grad) is not None])
        assert ours is not None
        error = (ours - wanted).norm() / wanted.norm().clamp(min=1e-3)
        assert error < 1e-4, f"{name}: {error}"
        compared |= set(sources)
    assert {n for n, p in theirs.items() if p.grad is not None} <= compared


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_and_gradients_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    family, settings = MODELS[kind]
    model = reference(family, settings)
    encoder = pretrained.load(str(keep(model, tmp_path)))
    pack = packed(encoder)
    assert (pack.tokens[:, 1].max() == 1) == (FAMILIES[family].offset == 0)  # real segments
    two = settings.get("type_vocab_size", 2) == 2 and FAMILIES[family].types
    states, pooled = one_by_one(model, pack, types=two)
    assert states.std() > 0.3

    places = tiny.trunk(encoder)
    ours = tiny.encode(places, pack)
    torch.testing.assert_close(ours, states, atol=1e-5, rtol=0)
    weight = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    loss, wanted = (ours * weight).sum(), (states * weight).sum()

    first = tiny.encode(places, pack, cls_only=True)
    starts = [sum(pack.lengths[:i]) for i in range(len(pack.lengths))]
    torch.testing.assert_close(first, states[starts], atol=1e-5, rtol=0)
    if pooled is not None:
        out = places["pooler"](first)
        torch.testing.assert_close(out, pooled, atol=1e-5, rtol=0)
        loss, wanted = loss + 3 * (out * first).sum(), wanted + 3 * (pooled * states[starts]).sum()
    else:
        assert "pooler" not in places
        loss, wanted = loss + first.square().sum(), wanted + states[starts].square().sum()
    loss.backward()
    wanted.backward()
    assert_close_gradients(places, model, encoder.shape)


def test_real_minilm(minilm: Encoder) -> None:
    model = transformers.AutoModel.from_pretrained(pretrained.minilm()).eval()
    encoder = minilm
    assert encoder.shape.layers == 6
    assert encoder.shape.width == 384
    assert encoder.saw_quora
    texts: list[tuple[str, ...]] = [
        ("A fine film, warm and quietly funny.",),
        ("Is it?",),
        ("How do trees grow?", "What makes a tree grow taller than the others around it?"),
        ("The root was under the old tree. " * 12,),
    ]
    pack = packed(encoder, texts)
    states, pooled = one_by_one(model, pack, types=True)
    places = tiny.trunk(encoder)
    ours = tiny.encode(places, pack)
    ours_pooled = places["pooler"](tiny.encode(places, pack, cls_only=True))
    torch.testing.assert_close(ours, states, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours_pooled, pooled, atol=1e-4, rtol=0)
    (ours.sum(1) * ours[:, 0]).sum().backward()
    (states.sum(1) * states[:, 0]).sum().backward()
    del places["pooler"]
    assert_close_gradients(places, model, encoder.shape)


def test_mean_of_texts() -> None:
    rows = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    layout = Layout((2, 1, 4, 2))
    means = torch.stack([part.mean(0) for part in rows.split(layout.lengths)])
    torch.testing.assert_close(mean_of_texts(rows, layout), means)
    assert torch.autograd.gradcheck(lambda x: mean_of_texts(x, layout), rows)


def test_a_layer_drops_in_embeddings_attention_and_both_halves() -> None:
    source = tiny.encoder()
    places = tiny.trunk(source)
    layer, embeddings = places["layer 1"], places["embeddings"]
    assert isinstance(layer, Layer)
    assert isinstance(embeddings, Embeddings)
    pack = tiny.pack([4, 4, 6])
    layout = Layout(pack.lengths)
    ids = pack.tokens.unbind(1)
    plain = embeddings(*ids, None)
    assert torch.equal(embeddings(*ids, tiny.dropout(rate=0.0)), plain)
    assert (embeddings(*ids, tiny.dropout()) == 0).any()
    whole = layer(plain, layout, None)
    assert not torch.equal(layer(plain, layout, tiny.dropout()), whole)
    assert torch.equal(layer(plain, layout, tiny.dropout()), layer(plain, layout, tiny.dropout()))


def test_bfloat16_runs_forward_and_backward() -> None:
    for family in ("bert", "mpnet"):
        places = tiny.trunk(tiny.encoder(family))
        pack = tiny.pack([4, 4, 6, 9])
        wanted = tiny.encode(places, pack)
        with torch.autocast("cpu", torch.bfloat16):
            found = tiny.encode(places, pack)
            first = tiny.encode(places, pack, cls_only=True)
        assert (found - wanted).norm() / wanted.norm() < 0.03
        (found.float().square().sum() + first.float().square().sum()).backward()
        for name, parameter in places.named_parameters():
            if "pooler" not in name:
                assert parameter.grad is not None, name
                assert parameter.grad.isfinite().all()
