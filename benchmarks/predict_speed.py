"""Answering speed: every task's answer for the same texts, beside what else people would use.

    python benchmarks/predict_speed.py [--texts 1000] [--rounds 8] [--encoder minilm] [--json FILE]

Without bough a user has one fine-tuned model per task: in transformers, fed in padded batches of 32
(and once more sorted by length, as sentence-transformers does by itself); exported to OpenVINO, in
bf16 and in int8 by nncf; or to onnxruntime, in int8. bough has one model under `full`, in fp32,
bf16 and int8. Every side tokenises and answers all tasks for all texts, in turn. Peers live in
environments of their own (`python benchmarks/peers/environments.py`); one that is not there has no
row, and its ratios are null in the JSON.

Prints the ratio of throughputs (medians of paired rounds), real tokens per second, and peak memory
of plain transformers and of bough (measured in processes of their own).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import peer
from bough.data.tokens import tokenise
from bough.errors import UserError
from bough.inference.torch_model import MultiTaskModel
from bough.model.network import Network, plan_of
from bough.model.pretrained import find, load
from bough.runs.cost import peak_memory
from peers import served

PLAIN = "three transformers models"


class PeerServer:
    """One transformers model per task."""

    def __init__(self, tasks, encoder: str):
        self.models = {n: peer.Peer(encoder, tasks, dropout=0.0).eval() for n in tasks}

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
    paired = {
        n: t if t.paired else t.model_copy(update={"text": ("a", "b")}) for n, t in tasks.items()
    }
    return paired, texts, load(args.encoder)


def model_in(precision: str, tasks, encoder, plan: str = "full") -> MultiTaskModel | None:
    """bough's in this precision, or `plain`; None where this machine does not answer so."""
    network = Network.pretrained(plan_of(plan, tasks, encoder.shape), tasks, encoder, 0)
    model = MultiTaskModel(network, encoder.tokenizer, 512)
    try:
        if precision != "plain":
            model.answer_in(precision)
    except UserError as error:
        print(error, file=sys.stderr)
        return None
    return model


def memory_of(side: str, args) -> int:
    command = [sys.executable, __file__, "--alone", side, "--texts", str(args.texts)]
    command += ["--encoder", args.encoder]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(out.split()[-1])


def alone(args) -> None:
    tasks, texts, encoder = setting(args)
    if args.alone == "transformers":
        PeerServer(tasks, args.encoder).answer(texts)
    else:
        model = model_in(args.alone, tasks, encoder)
        model.predict(texts)
    print(peak_memory())


def measured(args, tasks, texts, encoder) -> dict[str, list[float]]:
    """Seconds of every side's rounds."""
    server = PeerServer(tasks, args.encoder)
    by_length = sorted(texts, key=lambda text: sum(map(len, text)))
    variants: dict[str, Callable[[], object]] = {
        PLAIN: lambda: server.answer(texts),
        f"{PLAIN}, sorted": lambda: server.answer(by_length),
    }
    own = {p: model_in(p, tasks, encoder) for p in ("fp32", "bf16", "int8")}
    for precision, model in own.items():
        if model is not None:
            variants[f"bough, {precision}"] = lambda model=model: model.predict(texts)
    exported = [served.Answering(m.trunk, m.heads[n]) for n, m in server.models.items()]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = find(args.encoder) / "tokenizer.json"
        started = served.started(Path(folder), exported, tokenizer, texts, torch.get_num_threads())
        with started as others:
            for way, process in others.items():
                if process is not None:
                    variants[f"three {way} models"] = lambda process=process: process.ask("all")
            rounds = args.rounds + 1
            return peer.interleave(
                {name: lambda i, answer=answer: answer() for name, answer in variants.items()},
                {name: [1.0] * rounds for name in variants}, args.rounds, warmup=1,
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--encoder", default="minilm", help="a folder, a hub id, or minilm")
    parser.add_argument("--json", help="a file for the ratios")
    parser.add_argument(
        "--alone", choices=["fp32", "bf16", "int8", "transformers"], help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    if args.alone:
        alone(args)
        return
    tasks, texts, encoder = setting(args)
    sequences, _ = tokenise(texts, encoder.tokenizer, 512)
    tokens = int(sequences.lengths.sum())
    times = measured(args, tasks, texts, encoder)

    def ratio(name: str, base: str) -> float | None:
        return peer.ratio(times, base, name) if name in times and base in times else None

    strongest = "three openvino-int8 models"
    print(f"\n{len(texts)} texts, {tokens:,} tokens, {len(tasks)} tasks each\n")
    print(f"{'':34}{'x transformers':>15}{'x OpenVINO int8':>17}{'tokens/s':>11}")
    for name, seconds in times.items():
        beside = ratio(name, strongest)
        shown = "" if beside is None else f"{beside:.2f}"
        speed = tokens / statistics.median(seconds)
        print(f"{name:34}{ratio(name, PLAIN):15.2f}{shown:>17}{speed:11,.0f}")
    memory = {side: memory_of(side, args) for side in ("transformers", "fp32")}
    share = memory["fp32"] / memory["transformers"]
    print(
        f"\npeak memory: transformers {memory['transformers'] / 2**20:,.0f} MiB, "
        f"bough {memory['fp32'] / 2**20:,.0f} MiB, ratio {share:.2f}"
    )
    if args.json:
        ratios = {
            f"{p}_x_transformers": ratio(f"bough, {p}", PLAIN) for p in ("fp32", "bf16", "int8")
        }
        ratios |= {
            f"{p}_x_openvino_int8": ratio(f"bough, {p}", strongest) for p in ("bf16", "int8")
        }
        Path(args.json).write_text(json.dumps({**ratios, "memory_ratio": share}, indent=1) + "\n")


if __name__ == "__main__":
    main()
