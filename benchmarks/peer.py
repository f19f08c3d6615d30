"""What users would write without bough: plain `transformers`, one padded forward per task.

Both sides of a benchmark get the same examples, in turn, in one process: noise falls on both alike,
and a speed is only ever a ratio. Times are divided by the *real* tokens of the step, the work that
every side must do, so that batches of different lengths can be compared.

Examples come from the folder that BOUGH_DATA names (SST-5, Quora, STS), or, without it, from the
data embedded in bough.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough import demo
from bough.data import checked_rows
from bough.model import pretrained
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import Task

Chosen = Mapping[str, np.ndarray]  # task -> numbers of its training rows
CS224N = {
    "sst": {"kind": "classify", "text": "sentence", "label": "sentiment",
            "train": "ids-sst-train.csv", "dev": "ids-sst-dev.csv"},
    "quora": {"kind": "classify", "text": ["sentence1", "sentence2"], "label": "is_duplicate",
              "train": "quora-train.csv", "dev": "quora-dev.csv"},
    "sts": {"kind": "regress", "text": ["sentence1", "sentence2"], "label": "similarity",
            "range": [0, 5], "train": "sts-train.csv", "dev": "sts-dev.csv"},
}  # fmt: skip


def real_or_embedded() -> Recipe:
    """The tasks to measure on; prints where they come from."""
    folder = os.environ.get("BOUGH_DATA")
    if folder and (Path(folder) / "sts-train.csv").is_file():
        print(f"examples: SST-5, Quora and STS from {folder}")
        return Recipe.read({"data": folder, "tasks": CS224N, "rows": "skip"})
    print("examples: the embedded data (set BOUGH_DATA to measure on SST-5, Quora and STS)")
    return Recipe.read(demo.recipe())


def load_rows(recipe: Recipe) -> tuple[dict[str, Task], dict[str, checked_rows.Rows]]:
    tasks, train = {}, {}
    for name, task in recipe.tasks.items():
        tasks[name], splits = checked_rows.load(
            name, task, root=recipe.root, policy=recipe.rows, splits=["train"]
        )
        train[name] = splits["train"]
    return tasks, train


def draw(train: Mapping[str, checked_rows.Rows], steps: int, batch: int, group: int, seed: int = 0
         ) -> list[dict[str, np.ndarray]]:  # fmt: skip
    """`steps` times `batch` rows of every task; with `group`, windows of so many batches are sorted
    by length, as transformers' group_by_length does."""
    rng = np.random.default_rng(seed)
    per_task = {}
    for name, table in train.items():
        order = np.concatenate(
            [
                rng.permutation(len(table))
                for _ in range(1 + steps * max(batch, batch * group) // len(table))
            ]
        )
        if group > 1:
            size = np.array([sum(map(len, text)) for text in table.texts])
            window = batch * group
            parts = [order[i : i + window] for i in range(0, len(order), window)]
            parts = [part[np.argsort(size[part], kind="stable")] for part in parts]
            cut = [p[i : i + batch] for p in parts for i in range(0, len(p) - batch + 1, batch)]
            per_task[name] = [cut[i] for i in rng.permutation(len(cut))[:steps]]
        else:
            per_task[name] = [order[i * batch : (i + 1) * batch] for i in range(steps)]
    return [{name: per_task[name][i] for name in train} for i in range(steps)]


class Peer(nn.Module):
    """AutoModel, a linear head per task on [CLS], dynamic padding, fused AdamW."""

    def __init__(self, name: str, tasks: Mapping[str, Task], dropout: float, lr: float = 2e-5):
        super().__init__()
        from transformers import AutoModel, AutoTokenizer

        folder = str(pretrained.find(name))
        self.tasks = tasks
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.trunk = AutoModel.from_pretrained(  # attention by torch's kernels, where it has that
            folder,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
        width = self.trunk.config.hidden_size
        self.drop = nn.Dropout(dropout)
        self.heads = nn.ModuleDict({n: nn.Linear(width, t.outputs) for n, t in tasks.items()})
        self.optimiser = torch.optim.AdamW(self.parameters(), lr=lr, fused=True)

    def encoded(self, texts: Sequence[tuple[str, ...]]):
        """Tokenised, and padded to the longest."""
        first = [text[0] for text in texts]
        second = [text[1] for text in texts] if len(texts[0]) == 2 else None
        return self.tokenizer(
            first, second, padding=True, truncation=True, max_length=512, return_tensors="pt"
        )

    def logits(self, task: str, texts: Sequence[tuple[str, ...]]) -> Tensor:
        return self._logits(task, self.encoded(texts))

    def _logits(self, task: str, inputs) -> Tensor:
        return self.heads[task](self.drop(self.trunk(**inputs).last_hidden_state[:, 0]))

    def prepared(self, train: Mapping[str, checked_rows.Rows], chosen: Chosen) -> dict[str, tuple]:
        """A step's inputs and labels, task by task: tokenised before the clock runs, as bough's."""
        return {
            name: (
                self.encoded([train[name].texts[i] for i in which]),
                torch.tensor([train[name].labels[i] for i in which]),
            )
            for name, which in chosen.items()
        }

    def step(self, batch: Mapping[str, tuple], bf16: bool = False) -> float:
        self.train()
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):  # weights are cast once for all
            outputs = {name: self._logits(name, inputs) for name, (inputs, _) in batch.items()}
        losses = [peer_loss(self.tasks[n], out.float(), batch[n][1]) for n, out in outputs.items()]
        total = torch.stack(losses).sum()
        total.backward()
        self.optimiser.step()
        return total.item()


def peer_loss(task: Task, outputs: Tensor, labels: Tensor) -> Tensor:
    if task.kind == "regress":
        low, high = task.range
        return F.mse_loss(outputs[:, 0], (labels - low) / (high - low))
    if task.outputs == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], labels.float())
    return F.cross_entropy(outputs, labels)


def interleave(
    variants: Mapping[str, Callable[[int], None]], work: Mapping[str, Sequence[float]],
    rounds: int, warmup: int = 2,
) -> dict[str, list[float]]:  # fmt: skip
    """Seconds per unit of work, each variant's step i in turn."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for i in range(warmup + rounds):
        for name, step in variants.items():
            began = time.perf_counter()
            step(i)
            if i >= warmup:
                times[name].append((time.perf_counter() - began) / work[name][i])
    return times


def ratio(times: Mapping[str, Sequence[float]], base: str, name: str) -> float:
    """How many times as fast as `base`: the median of the paired rounds."""
    return statistics.median(b / t for b, t in zip(times[base], times[name], strict=True))


def matrix_speed(
    dtype: torch.dtype = torch.float32, rows_: int = 2048, inner: int = 384, outer: int = 1536,
    seconds: float = 2.0,
) -> float:  # fmt: skip
    """The best speed of matrix products of such numbers on this machine, now, in FLOP/s."""
    a, b = torch.randn(rows_, inner).to(dtype), torch.randn(inner, outer).to(dtype)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(10):
            a @ b
        best = max(best, 20 * rows_ * inner * outer / (time.perf_counter() - began))
    return best
