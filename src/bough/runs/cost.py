"""What a run cost: seconds, memory, parameters, bytes, FLOPs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import numpy as np
import psutil
import torch

import bough
from bough.model.network import Network
from bough.native.build import library
from bough.plan.cost import cost

STEADY = 5  # steps at the start that are not counted: memory and threads warm up


def peak_memory() -> int:
    """The most memory this process ever had, in bytes."""
    try:
        # Not getrusage: on Linux that also counts what the parent had before it started us.
        with open("/proc/self/status", encoding="ascii") as file:
            peak = next(line for line in file if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return int(psutil.Process().memory_info().peak_wset)  # type: ignore[attr-defined]
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) if sys.platform == "darwin" else int(most) * 1024


def environment() -> dict[str, Any]:
    """The machine and the versions, as far as they can change a result."""
    packages = ("torch", "tokenizers", "safetensors", "numpy", "scipy", "scikit-learn", "torchjd")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kernels": "torch's" if library() is None else "bough's",
        "memory": psutil.virtual_memory().total,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {
            "bough": bough.__version__,
            **{p: metadata.version(p) for p in packages},
        },
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            ]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor()


def of_run(
    network: Network,
    seconds: float,
    step_seconds: Iterable[float],
    tokens: int,
    lengths: Mapping[str, float],
    memory: int = 0,
) -> dict[str, Any]:
    """The contents of cost.json; `lengths` are the mean tokens of each task's examples, `memory` is
    the peak of the run's earlier processes."""
    outputs = {name: task.outputs for name, task in network.tasks.items()}
    every_row = ("mean", "words")
    means = [name for name, task in network.tasks.items() if task.pooling in every_row]
    flops = {}
    for name, task in network.tasks.items():
        walks = 2 if task.twin else 1  # the two texts of a twin pair walk one by one
        length = max(1, round(lengths[name] / walks))
        static = cost(network.plan, network.shape, outputs, length, means=means)
        flops[name] = walks * static.flops_per_example[name]
    counted = sum(p.numel() for p in network.parameters())
    learning = sum(p.numel() for p in network.parameters() if p.requires_grad)
    seconds_each = list(step_seconds)
    steady = seconds_each[STEADY:] or seconds_each
    return {
        "training_seconds": seconds,
        "step_seconds": float(np.median(steady)) if steady else None,
        "peak_memory": max(memory, peak_memory()),
        "parameters": counted,
        "learning_parameters": learning,
        "parameters_per_task": static.task_parameters,
        "bytes_to_serve": counted * 4,
        "bytes_with_optimiser": counted * 4 + learning * 8,
        "flops_per_example": flops,
        "tokens": tokens,
    }
