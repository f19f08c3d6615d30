"""What only one family's config says: both generations of it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from bough.errors import UserError
from bough.plan.encoder_shape import Shape
from tests import tiny

# As the hub has it for ModernBERT-base, written before transformers 5.
MODERNBERT_BASE: dict[str, Any] = {
    "model_type": "modernbert", "hidden_size": 768, "intermediate_size": 1152,
    "num_hidden_layers": 22, "num_attention_heads": 12, "vocab_size": 50368,
    "max_position_embeddings": 8192, "hidden_activation": "gelu", "norm_eps": 1e-5,
    "attention_bias": False, "mlp_bias": False, "norm_bias": False, "layer_norm_eps": 1e-5,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_attention": 128,
    "local_rope_theta": 10000.0, "position_embedding_type": "absolute",
}  # fmt: skip

DEBERTA_V3_BASE: dict[str, Any] = {
    "model_type": "deberta-v2", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 512, "relative_attention": True,
    "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1,
    "position_biased_input": False, "num_attention_heads": 12, "num_hidden_layers": 12,
    "type_vocab_size": 0, "vocab_size": 128100,
}  # fmt: skip


def test_modernbert_base() -> None:
    shape = Shape.of(MODERNBERT_BASE)
    assert shape.longest == 8192
    assert (shape.window, shape.theta, shape.local_theta) == (128, 160000.0, 10000.0)
    seeing_all = [n for n in range(1, 23) if n not in shape.local]
    assert seeing_all == [1, 4, 7, 10, 13, 16, 19, 22]
    assert (shape.reach(1), shape.reach(2)) == (None, 64)
    layers = sum(shape.layer_parameters(n) for n in range(1, 23))
    assert shape.embedding_parameters + layers == 149_014_272


def test_both_generations_of_modernbert_configs() -> None:
    old = Shape.of(MODERNBERT_BASE)
    written = old.config()
    assert Shape.of(written) == old
    for key in ("global_rope_theta", "local_rope_theta"):
        del written[key]
    assert Shape.of(written) == old
    # Some checkpoints name positions that transformers does not look at, or leave a base out.
    odd = MODERNBERT_BASE | {"position_embedding_type": "sans_pos", "local_rope_theta": None}
    assert Shape.of(odd) == old


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "attention_bias is True; .* with False there"),
        ({"norm_bias": True}, "norm_bias is True"),
        ({"layer_types": ["full_attention"]}, "layer_types .* each of the 22 layers"),
        ({"layer_types": ["chunked_attention"] * 22}, "layer_types"),
        ({"global_attn_every_n_layers": 0}, "every_n_layers is 0"),
        ({"local_attention": "128"}, "local_attention is '128'"),
        ({"local_attention": 1}, "window is 1"),
        ({"global_rope_theta": "x"}, "global_rope_theta is 'x'"),
        ({"local_rope_theta": 0.5}, "local_rope_theta is 0.5"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "type 'yarn'"),
        ({"rope_parameters": []}, ""),
        ({"num_attention_heads": 256}, "even width"),
    ],
)
def test_what_a_modernbert_config_may_not_say(change: dict[str, Any], message: str) -> None:
    if not message:
        assert Shape.of(MODERNBERT_BASE | change) == Shape.of(MODERNBERT_BASE)
        return
    with pytest.raises(UserError, match=message):
        Shape.of(MODERNBERT_BASE | change)


def test_deberta_v3_base() -> None:
    shape = Shape.of(DEBERTA_V3_BASE)
    assert (shape.relative, shape.longest, shape.eps) == (512, 512, 1e-7)
    layers = sum(shape.layer_parameters(n) for n in range(1, 13))
    assert shape.embedding_parameters + layers == 183_831_552
    assert Shape.of(shape.config()) == shape
    assert Shape.of(DEBERTA_V3_BASE | {"max_relative_positions": 512}) == shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv_kernel_size": 3}, "conv_kernel_size is 3; .* with 0 there"),  # DeBERTa-v2
        ({"share_att_key": False}, "share_att_key is False"),
        ({"relative_attention": None}, "relative_attention is None"),
        ({"norm_rel_ebd": "none"}, "norm_rel_ebd is 'none'"),
        ({"position_biased_input": True}, "position_biased_input is True"),
        ({"type_vocab_size": 2}, "type_vocab_size is 2"),
        ({"pos_att_type": "c2p"}, "pos_att_type is 'c2p'"),
        ({"pos_att_type": None}, "pos_att_type is None"),
        ({"max_relative_positions": 128}, "max_relative_positions is 128; expected 512"),
        ({"embedding_size": 128}, "embedding_size is 128; expected 768"),
        ({"position_buckets": -1}, "position_buckets is -1"),
        ({"position_buckets": 1}, "relative is 2"),
    ],
)
def test_what_a_deberta_config_may_not_say(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Shape.of(DEBERTA_V3_BASE | change)


@pytest.mark.parametrize(
    ("family", "change", "key"),
    [
        ("modernbert", {"theta": 0.0}, "theta"),
        ("modernbert", {"local": (3,)}, "local"),
        ("deberta-v2", {"relative": 7}, "relative"),
        ("deberta-v2", {"relative": 0}, "relative"),
    ],
)
def test_a_damaged_shape_is_told(family: str, change: dict[str, Any], key: str) -> None:
    assert not list(tiny.shape(family).problems())
    assert [k for k, _ in tiny.shape(family, **change).problems()] == [key]
