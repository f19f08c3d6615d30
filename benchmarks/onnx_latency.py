"""One text at a time: the ONNX export against one plain transformers model, tokenizers included.

    python benchmarks/onnx_latency.py [--texts 200] [--threads 1] [--plan full]

Without bough a user has a transformers model per task and asks one of them. bough answers every
task that fits the text (one on single texts, two on pairs) from one graph. The texts are answered
in turn by each side; latencies are medians (p50), and what counts is their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import peer
from bough.export.onnx_export import write_files
from bough.inference import onnx_model
from bough.inference.torch_model import MultiTaskModel
from bough.model.network import Network, plan_of
from bough.model.pretrained import load


def some_texts(train, tasks, count: int):
    """As many single texts as pairs, each drawn from all its tasks' rows."""
    rng = np.random.default_rng(0)
    out = []
    for paired in (False, True):
        rows = [text for n, own in train.items() if tasks[n].paired == paired for text in own.texts]
        chosen = rng.permutation(len(rows))[: count // 2]
        out.append([rows[i] if paired else rows[i][0] for i in chosen])
    return {"one text": out[0], "a pair": [tuple(text) for text in out[1]]}


def clocked(variants, texts):
    """Seconds of each variant for each text, in turn; a few first ones to warm up."""
    times = {name: [] for name in variants}
    for text in texts[:5]:
        for answer in variants.values():
            answer(text)
    for text in texts:
        for name, answer in variants.items():
            began = time.perf_counter()
            answer(text)
            times[name].append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1, help="of every side")
    parser.add_argument("--plan", default="full")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    recipe = peer.real_or_embedded()
    tasks, train = peer.load_rows(recipe)
    tasks = {n: t.model_copy(update={"pooling": "cls"}) for n, t in tasks.items()}
    pretrained = load("minilm")
    plan = plan_of(args.plan, tasks, pretrained.shape)
    model = MultiTaskModel(
        Network.pretrained(plan, tasks, pretrained, 0), pretrained.tokenizer, 512
    )
    single = next(n for n, t in tasks.items() if not t.paired)
    double = next(n for n, t in tasks.items() if t.paired)
    theirs = peer.Peer("minilm", tasks, dropout=0.0).eval()

    @torch.inference_mode()
    def one_transformers_model(text):
        name = single if isinstance(text, str) else double
        return theirs.logits(name, [(text,) if isinstance(text, str) else text]).softmax(-1)

    with tempfile.TemporaryDirectory() as folder:
        sides = {"transformers, one model": one_transformers_model, "bough": model.predict}
        for name, int8 in (("bough, ONNX", False), ("bough, ONNX int8", True)):
            part = Path(folder) / name
            part.mkdir()
            write_files(model, part, int8)
            sides[name] = onnx_model.load(part, args.threads).predict
        texts = some_texts(train, tasks, args.texts)
        print(
            f"\nplan {plan.text}, {args.threads} thread(s), {args.texts // 2} texts of each kind\n"
        )
        print(f"{'':26}{'':10}{'p50 ms':>9}{'p95 ms':>9}{'ratio of p50':>14}")
        for kind, own in texts.items():
            times = clocked(sides, own)
            base = statistics.median(times["transformers, one model"])
            for name, seconds in times.items():
                p50, p95 = np.quantile(seconds, [0.5, 0.95])
                print(f"{name:26}{kind:10}{p50 * 1e3:9.2f}{p95 * 1e3:9.2f}{p50 / base:14.2f}")


if __name__ == "__main__":
    main()
