"""Peers that answer in environments of their own, started and asked from a benchmark.

Each is a process that waits for a question on a pipe, so that all sides of a benchmark can run in
turn, in one sitting. What could not be installed or started is None, and the reason is said.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from peers.environments import python_of

WAYS = ("openvino-bf16", "openvino-int8", "onnxruntime-int8")
SCRIPT = Path(__file__).parent / "answer.py"


class Served:
    """One peer's process."""

    def __init__(self, way: str, python: Path, job: Path):
        self.process = subprocess.Popen(
            [str(python), str(SCRIPT), way, str(job)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ready(self) -> str | None:
        """Wait for it; why it did not start, or None."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        if self.process.stdout.readline().strip() == "ready":
            return None
        return self.process.stderr.read().strip().splitlines()[-1]

    def ask(self, question: str | int) -> float:
        """Seconds that the answer took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


@contextmanager
def started(
    folder: Path, models: Sequence[nn.Module], tokenizer: Path, texts: Sequence[Sequence[str]],
    threads: int, one: bool = False, batch: int = 32,
) -> Iterator[Mapping[str, Served | None]]:  # fmt: skip
    """Every peer that is installed, ready; None for others. `one`: single texts will be asked."""
    files = [export(model, folder / f"model{n}.onnx") for n, model in enumerate(models)]
    job: dict[str, Any] = {
        "models": files, "tokenizer": str(tokenizer), "texts": [list(t) for t in texts],
        "threads": threads, "batch": batch, "one": one,
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    peers: dict[str, Served | None] = {}
    try:
        for way in WAYS:
            peers[way] = None
            python = python_of(way.split("-")[0])
            if python is None:
                print(f"{way}: not installed here (benchmarks/peers/environments.py)")
                continue
            process = Served(way, python, folder / "job.json")
            reason = process.ready()  # one after another: preparing takes all cores
            if reason is None:
                peers[way] = process
            else:
                print(f"{way}: does not start ({reason})", file=sys.stderr)
        yield peers
    finally:
        for process in filter(None, peers.values()):
            process.process.kill()
            process.process.wait()


class Answering(nn.Module):
    """A transformers model with one task's head, as people export it."""

    def __init__(self, trunk: nn.Module, head: nn.Module):
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        kinds = {} if self.trunk.config.type_vocab_size == 1 else {"token_type_ids": token_type_ids}
        states = self.trunk(input_ids, attention_mask=attention_mask, **kinds).last_hidden_state
        out: Tensor = self.head(states[:, 0])
        return out


def export(model: nn.Module, file: Path) -> str:
    shape = {0: torch.export.Dim("n"), 1: torch.export.Dim("length")}
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = torch.ones(2, 16, dtype=torch.long)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, aloud
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), (example, example.clone(), torch.zeros_like(example)), str(file),
            input_names=names, output_names=["outputs"], dynamo=True, external_data=False,
            verbose=False, dynamic_shapes=dict.fromkeys(names, shape),
        )  # fmt: skip
    return str(file)
