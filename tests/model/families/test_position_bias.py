"""Biases by distance are those of MPNet, and the same in both forms."""

from __future__ import annotations

import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from bough.model.families.position_bias import distance_bias, position_bias, position_bucket


def test_relative_buckets_are_those_of_mpnet() -> None:
    positions = torch.arange(512)
    distance = positions[:, None] - positions[None, :]
    for buckets in (8, 32, 64):
        wanted = MPNetEncoder.relative_position_bucket(-distance, num_buckets=buckets)
        assert torch.equal(position_bucket(distance, buckets), wanted)


# --- where things lie -----------------------------------------------------------------------------


def test_by_distance_and_by_position_are_the_same() -> None:
    table, n = torch.randn(8, 3), 20
    by_distance = distance_bias(table, n)
    at = torch.arange(n)
    distance = at[:, None] - at[None, :]
    assert torch.equal(by_distance[:, n - 1 - distance], position_bias(table, n))
