"""An encoder's sizes, from any family's config.json and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from bough.errors import UserError
from bough.plan.encoder_shape import Shape
from tests import tiny
from tests.reference import MODELS


@pytest.mark.parametrize("kind", MODELS)
def test_config_goes_round(kind: str) -> None:
    family, settings = MODELS[kind]
    shape = Shape.of(transformers.AutoConfig.for_model(family, **settings).to_dict())
    assert shape.family == family
    assert Shape.of(shape.config()) == shape
    back = transformers.AutoConfig.for_model(**shape.config())
    assert Shape.of(back.to_dict()) == shape


def test_unknown_encoders_are_refused_with_the_list(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(UserError, match=r"'gpt2'.*bert, roberta, .*mpnet"):
        Shape.read(tmp_path)


def test_albert_is_refused_with_the_reason() -> None:
    with pytest.raises(UserError, match=r"albert .*all its layers are one and the same.* bert, "):
        Shape.of({"model_type": "albert"})


def test_what_a_config_may_not_say(tmp_path: Path) -> None:
    good = Shape.of(tiny.shape().config()).config()
    changes: list[tuple[dict[str, object], str]] = [
        ({"model_type": ["bert"]}, "cannot run"),
        ({"model_type": None}, "cannot run"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "decoder"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"hidden_size": 18}, "18 is not a multiple of 4"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"hidden_act": "silu"}, "'silu' is not one of gelu"),
        ({"type_vocab_size": "two"}, "type_vocab_size is 'two'"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps is 'small'"),
    ]
    file = tmp_path / "config.json"
    for change, message in changes:
        file.write_text(json.dumps(good | change))
        with pytest.raises(UserError, match=message) as caught:
            Shape.read(tmp_path)
        assert str(file) in str(caught.value)
    for text in ("", "[1]", "{'a'}"):
        file.write_text(text)
        with pytest.raises(UserError, match=r"config\.json: "):
            Shape.read(file)


@pytest.mark.parametrize("key", ["num_hidden_layers", "vocab_size", "hidden_size"])
def test_sizes_that_no_encoder_has(key: str) -> None:
    config = {
        "model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 32, "vocab_size": 100, "max_position_embeddings": 64,
    }  # fmt: skip
    assert Shape.of(config).layers == 2
    with pytest.raises(UserError, match="no encoder has over"):
        Shape.of(config | {key: 10**7})
