"""Answering speed against plain transformers: every task's answer for the same texts.

    python benchmarks/predict_speed.py [--texts 1000] [--rounds 3]

Without bough a user has one fine-tuned transformers model per task and feeds each in padded batches
of 32. bough has one model under `full`. Both sides tokenise; both answer all tasks for all texts.
Prints the ratio of throughputs, real tokens per second, the share of the machine's matrix-product
speed, and peak memory (measured in processes of their own).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

import numpy as np
import torch

import peer
from bough.data.tokens import tokenise
from bough.inference.torch_model import MultiTaskModel
from bough.model.network import Network, plan_of
from bough.model.pretrained import load
from bough.runs.cost import peak_memory
from train_speed import forward_flops


class PeerServer:
    """One transformers model per task."""

    def __init__(self, tasks):
        self.models = {n: peer.Peer("minilm", tasks, dropout=0.0).eval() for n in tasks}

    @torch.inference_mode()
    def answer(self, texts, size: int = 32):
        return {
            n: torch.cat([m.logits(n, texts[i : i + size]) for i in range(0, len(texts), size)])
            for n, m in self.models.items()
        }


def setting(args):
    recipe = peer.real_or_embedded()
    tasks, train = peer.load_rows(recipe)
    # Every task is asked about every text: single texts and pairs alike, as sequences.
    tasks = {n: t.model_copy(update={"pooling": "cls"}) for n, t in tasks.items()}
    rng = np.random.default_rng(0)
    pairs = [text for table in train.values() for text in table.texts if len(text) == 2]
    texts = [pairs[i] for i in rng.permutation(len(pairs))[: args.texts]]
    pretrained = load("minilm")
    paired = {
        n: t if t.paired else t.model_copy(update={"text": ("a", "b")}) for n, t in tasks.items()
    }
    network = Network.pretrained(plan_of("full", paired, pretrained.shape), paired, pretrained, 0)
    return paired, texts, pretrained, MultiTaskModel(network, pretrained.tokenizer, 512)


def memory_of(side: str, args) -> int:
    command = [sys.executable, __file__, "--alone", side, "--texts", str(args.texts)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(out.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", choices=["bough", "transformers"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    tasks, texts, pretrained, model = setting(args)
    if args.alone == "bough":
        model.predict(texts)
        print(peak_memory())
        return
    server = PeerServer(tasks)
    if args.alone == "transformers":
        server.answer(texts)
        print(peak_memory())
        return
    sequences, _ = tokenise(texts, pretrained.tokenizer, 512)
    tokens = int(sequences.lengths.sum())
    variants = {
        "three transformers models": lambda i: server.answer(texts),
        "bough, full": lambda i: model.predict(texts),
    }
    speed = peer.matrix_speed()
    times = peer.interleave(
        variants, {n: [tokens] * (args.rounds + 1) for n in variants}, args.rounds, warmup=1
    )
    flops = forward_flops(sequences.lengths.astype(float), pretrained.shape)
    print(f"\n{len(texts)} texts, {tokens:,} tokens, {len(tasks)} tasks each")
    print(f"matrix products: {speed / 1e9:.0f} GFLOP/s\n")
    print(f"{'':28}{'times as fast':>14}{'tokens/s':>11}{'of matrix speed':>17}")
    for name in variants:
        per_token = statistics.median(times[name])
        share = flops / (per_token * tokens) / speed * (len(tasks) if "three" in name else 1)
        ratio = peer.ratio(times, "three transformers models", name)
        print(f"{name:28}{ratio:14.2f}{1 / per_token:11,.0f}{share:17.0%}")
    memory = {side: memory_of(side, args) for side in ("transformers", "bough")}
    print(
        f"\npeak memory: transformers {memory['transformers'] / 2**20:,.0f} MiB, "
        f"bough {memory['bough'] / 2**20:,.0f} MiB, "
        f"ratio {memory['bough'] / memory['transformers']:.2f}"
    )


if __name__ == "__main__":
    main()
