"""A bias of the scores by the distance of two tokens: MPNet's, in T5's buckets.

Raffel et al. 2019, https://arxiv.org/abs/1910.10683.
"""

from __future__ import annotations

import torch
from torch import Tensor


def position_bias(table: Tensor, length: int) -> Tensor:
    """MPNet's bias by distance: [distances, heads] -> [heads, length, length]."""
    at = torch.arange(length, device=table.device)
    distance = at[:, None] - at[None, :]
    return table[position_bucket(distance, table.shape[0])].permute(2, 0, 1)


def distance_bias(table: Tensor, reach: int) -> Tensor:
    """The same by distance: [heads, 2 reach - 1], from reach - 1 down to 1 - reach."""
    distance = torch.arange(reach - 1, -reach, -1, device=table.device)
    return table[position_bucket(distance, table.shape[0])].T


def position_bucket(distance: Tensor, buckets: int, furthest: int = 128) -> Tensor:
    """T5's buckets: half for each direction, exact when near, logarithmic when far."""
    half = buckets // 2
    exact = half // 2
    far = distance.abs().clamp(min=1).float()
    log = torch.log(far / exact) / torch.log(torch.tensor(furthest / exact)) * (half - exact)
    near = distance.abs()
    which = torch.where(near < exact, near, (exact + log.long()).clamp(max=half - 1))
    return which + half * (distance < 0)
