"""Settings that only one family has: read from its `config.json`, and written back.

What such a config can say and no known checkpoint does is refused, not guessed at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bough.errors import UserError, shorten

Settings = dict[str, Any]
GLOBAL, LOCAL = "full_attention", "sliding_attention"
SPECIAL_TOKENS = tuple(f"{part}_token_id" for part in ("pad", "bos", "eos", "cls", "sep"))


def read_modernbert(config: Mapping[str, Any], layers: int, where: str) -> Settings:
    """Rotary positions, and which layers see a window only.

    Configs from before transformers 5 say "every third layer sees all" and have the two rotary
    bases side by side; later ones list the layers' types, and the bases by type.
    """
    for key in ("attention_bias", "mlp_bias", "norm_bias"):
        _expect(config, where, key, False, absent=False)
    types = config.get("layer_types")
    if types is None:
        every = _number(config, where, "global_attn_every_n_layers", 3)
        types = [LOCAL if n % every else GLOBAL for n in range(layers)]
    if (
        not isinstance(types, list)
        or len(types) != layers
        or not {*map(str, types)} <= {GLOBAL, LOCAL}
    ):
        raise UserError(
            f"{where}: layer_types is {shorten(types)}; expected {GLOBAL} or {LOCAL} for each of "
            f"the {layers} layers"
        )
    parameters = config.get("rope_parameters") or {}
    if config.get("rope_scaling") is not None or not isinstance(parameters, dict):
        raise UserError(f"{where}: scaled rotary positions (rope_scaling) are not supported")
    theta = _theta(config, parameters.get(GLOBAL), "global_rope_theta", 160_000.0, where)
    return {
        "window": _number(config, where, "local_attention", 128),
        "local": tuple(n for n, kind in enumerate(types, 1) if kind == LOCAL),
        "theta": theta,
        "local_theta": _theta(config, parameters.get(LOCAL), "local_rope_theta", 10_000.0, where),
    }


def write_modernbert(settings: Mapping[str, Any]) -> Settings:
    """The keys of both generations of configs."""
    layers, local = settings["layers"], settings["local"]
    bases = {GLOBAL: settings["theta"], LOCAL: settings["local_theta"]}
    return {
        "local_attention": settings["window"],
        "layer_types": [LOCAL if n in local else GLOBAL for n in range(1, layers + 1)],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        },
        # Which tokens are special is the tokenizer's to say; those of the config's own default are
        # not in every vocabulary.
        **dict.fromkeys(SPECIAL_TOKENS),
        "global_rope_theta": settings["theta"],
        "local_rope_theta": settings["local_theta"],
    }


# What DeBERTa-v3 is among all that a config of this family can say, and what transformers takes
# where the config says nothing.
DEBERTA_V3: Mapping[str, tuple[Any, Any]] = {
    "relative_attention": (True, False),
    "share_att_key": (True, False),
    "norm_rel_ebd": ("layer_norm", "none"),
    "position_biased_input": (False, True),
    "type_vocab_size": (0, 0),
    "conv_kernel_size": (0, 0),
}


def read_deberta(config: Mapping[str, Any], sizes: Mapping[str, int], where: str) -> Settings:
    """The buckets of distances, as many to either side."""
    for key, (wanted, absent) in DEBERTA_V3.items():
        _expect(config, where, key, wanted, absent)
    kinds = config.get("pos_att_type")
    parts = kinds.split("|") if isinstance(kinds, str) else kinds
    if not isinstance(parts, list) or sorted(str(part).strip() for part in parts) != ["c2p", "p2c"]:
        raise UserError(
            f"{where}: pos_att_type is {shorten(kinds)}; of this family bough runs encoders with "
            "'p2c|c2p' there"
        )
    furthest = config.get("max_relative_positions", -1)
    for key, value, wanted in (
        ("max_relative_positions", furthest, sizes["positions"]),
        ("embedding_size", config.get("embedding_size", -1), sizes["width"]),
    ):
        if value not in (-1, None, wanted):
            raise UserError(f"{where}: {key} is {shorten(value)}; expected {wanted}, or none")
    return {"relative": 2 * _number(config, where, "position_buckets", -1)}


def write_deberta(settings: Mapping[str, Any]) -> Settings:
    return {
        **{key: wanted for key, (wanted, _) in DEBERTA_V3.items()},
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": settings["relative"] // 2,
        "max_relative_positions": -1,
        "pad_token_id": 0,
    }


def deberta_distances(relative: int, length: int, furthest: int) -> int:
    """How many of the buckets of distances texts of this length have a use for."""
    middle = far = relative // 4
    if length > middle:
        steps = math.log(length / middle) / math.log((furthest - 1) / middle) * (middle - 1)
        far += math.ceil(steps)
    return min(2 * min(length, far) + 1, relative)


def _theta(config: Mapping[str, Any], rotary: Any, key: str, default: float, where: str) -> float:
    rotary = rotary if isinstance(rotary, dict) else {}
    if rotary.get("rope_type", "default") != "default":
        raise UserError(
            f"{where}: rotary positions of type {shorten(rotary['rope_type'])} are not supported; "
            "choose an encoder with plain ones"
        )
    value = rotary.get("rope_theta", config.get(key))
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, float | int) or not 1 < value < 1e12:
        raise UserError(f"{where}: {key} is {shorten(value)}; expected a number above 1")
    return float(value)


def _expect(
    config: Mapping[str, Any], where: str, key: str, wanted: Any, absent: Any = None
) -> None:
    value = config.get(key, absent)
    if value != wanted:
        raise UserError(
            f"{where}: {key} is {shorten(value)}; of this family bough runs encoders with "
            f"{wanted!r} there"
        )


def _number(config: Mapping[str, Any], where: str, key: str, default: int) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{where}: {key} is {shorten(value)}; expected a positive whole number")
    return value
