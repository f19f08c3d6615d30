"""What a run cost: counted from the network, and from the clock without its warm-up."""

from __future__ import annotations

import subprocess
import sys

import torch

from bough.runs import cost
from tests import tiny

TASKS = {"one": tiny.task(), "two": tiny.task(twin=True, number=True)}


def test_parameters_bytes_and_steady_steps() -> None:
    network = tiny.network("split@1", TASKS)
    steps = [9.0] * cost.STEADY + [1.0, 2.0, 3.0]
    out = cost.of_run(network, 60.0, steps, 1234, {"one": 8.0, "two": 16.0})
    count = sum(p.numel() for p in network.parameters())
    assert out["step_seconds"] == 2.0, "the first steps are not counted"
    assert (out["parameters"], out["bytes_to_serve"]) == (count, 4 * count)
    assert (out["training_seconds"], out["tokens"]) == (60.0, 1234)
    # Two texts of eight tokens each cost about twice one text of eight.
    ratio = out["flops_per_example"]["two"] / out["flops_per_example"]["one"]
    assert 1.9 < ratio < 2.1
    assert cost.of_run(network, 1.0, [], 0, {"one": 8.0, "two": 16.0})["step_seconds"] is None


def test_what_is_frozen_needs_no_optimiser() -> None:
    network = tiny.network("frozen", TASKS)
    out = cost.of_run(network, 1.0, [1.0], 1, {"one": 8.0, "two": 16.0})
    learning = sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert 0 < learning < out["parameters"]
    assert out["bytes_with_optimiser"] == 4 * out["parameters"] + 8 * learning


def test_the_peak_is_this_process_alone() -> None:
    """And not what the parent had before it started us, which may be much."""
    ballast = torch.ones(100_000_000)
    code = "from bough.runs.cost import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < cost.peak_memory()
    assert cost.peak_memory() > ballast.nbytes


def test_the_environment_names_machine_and_versions() -> None:
    where = cost.environment()
    assert where["packages"]["torch"] == torch.__version__
    assert {"bough", "tokenizers", "torchjd"} <= set(where["packages"])
    assert where["threads"] == torch.get_num_threads()
    assert where["processor"]
