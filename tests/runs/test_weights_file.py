"""Weights are written as the safetensors library writes them, straight into the file."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from bough.files import write_atomically
from bough.runs.weights_file import TYPES, digest_of, write_weights

SHAPES = st.lists(st.integers(0, 4), max_size=3)


@given(st.dictionaries(st.text(min_size=1), st.tuples(st.sampled_from([*TYPES]), SHAPES)))
def test_the_bytes_are_the_librarys(kinds: dict[str, tuple[torch.dtype, list[int]]]) -> None:
    kinds.pop("__metadata__", None)
    tensors = {name: torch.randn(shape).to(dtype) for name, (dtype, shape) in kinds.items()}
    written = bytearray()

    class Memory:
        write = written.extend

    write_weights(Memory, tensors)
    assert bytes(written) == save(tensors, {"format": "pt"})
    assert digest_of(tensors) == hashlib.sha256(written).hexdigest()


def test_views_are_written_as_tensors_of_their_own(tmp_path: Path) -> None:
    whole = torch.randn(6, 4)
    views = {"a": whole[:, 1], "b": whole.t(), "c": whole}
    write_atomically(tmp_path / "w", lambda file: write_weights(file, views))
    for name, tensor in load_file(tmp_path / "w").items():
        assert torch.equal(tensor, views[name])


def test_no_second_copy_is_held(tmp_path: Path) -> None:
    tensors = {str(n): torch.zeros(2**18) for n in range(16)}  # 16 MiB
    tracemalloc.start()
    write_atomically(tmp_path / "w", lambda file: write_weights(file, tensors))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_a_type_that_it_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="can be written"):
        write_atomically(
            tmp_path / "w", lambda file: write_weights(file, {"a": torch.zeros(1).double()})
        )
    assert not (tmp_path / "w").exists()
