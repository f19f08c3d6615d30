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


def test_modernbert_base() -> None:
    shape = Shape.of(MODERNBERT_BASE)
    assert shape.longest == 8192
    assert (shape.window, shape.theta, shape.local_theta) == (128, 160000.0, 10000.0)
    seeing_all = [n for n in range(1, 23) if n not in shape.local]
    assert seeing_all == [1, 4, 7, 10, 13, 16, 19, 22]
    assert (shape.reach(1), shape.reach(2)) == (None, 64)
    # The published count: 149 M parameters, of which the prediction head has 0.6 M.
    layers = sum(shape.layer_parameters(n) for n in range(1, 23))
    assert shape.embedding_parameters + layers == 149_014_272 - 0


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


def test_a_damaged_shape_is_told() -> None:
    good = tiny.shape("modernbert")
    assert not list(good.problems())
    for change, key in (({"theta": 0.0}, "theta"), ({"local": (3,)}, "local")):
        assert [k for k, _ in tiny.shape("modernbert", **change).problems()] == [key]
