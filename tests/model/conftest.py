"""A small reference model that several files of this folder save and read."""

from __future__ import annotations

import pytest
from transformers import PreTrainedModel

from tests.reference import SIZES, reference


@pytest.fixture
def model() -> PreTrainedModel:
    return reference("bert", {**SIZES, "num_hidden_layers": 1})
