"""One text at a time: bough in every form against one model of others, tokenizers included.

    python benchmarks/one_text_latency.py [--texts 200] [--threads 1] [--plan full] [--json FILE]

Without bough a user has a model per task and asks one of them: in transformers, or exported to
OpenVINO or onnxruntime (`peers/environments.py`). bough answers every task that fits the text, one
on single texts and two on pairs, itself in fp32, bf16 and int8, or from its ONNX export. The texts
are answered in turn by each side; latencies are medians (p50), and what counts is their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import peer
from bough.export.onnx_export import write_files
from bough.inference import onnx_model
from bough.model.network import plan_of
from bough.model.pretrained import find, load
from peers import served
from predict_speed import model_in

BASE = "transformers, one model"


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
    """Seconds of each variant for each text, in turn; a few first ones to warm up.

    A peer in another process says itself how long it took.
    """
    times = {name: [] for name in variants}
    for number in (*range(5), *range(len(texts))):
        for name, answer in variants.items():
            if isinstance(answer, served.Served):
                times[name].append(answer.ask(number))
                continue
            began = time.perf_counter()
            answer(texts[number])
            times[name].append(time.perf_counter() - began)
    return {name: seconds[5:] for name, seconds in times.items()}


def own_sides(args, tasks, encoder, folder: Path) -> dict:
    """bough's, in every precision that this machine has, and exported."""
    models = {p: model_in(p, tasks, encoder, args.plan) for p in ("fp32", "bf16", "int8")}
    sides = {f"bough, {p}": model.predict for p, model in models.items() if model is not None}
    plain = model_in("plain", tasks, encoder, args.plan)
    for name, int8 in (("bough, ONNX", False), ("bough, ONNX int8", True)):
        part = folder / name
        part.mkdir()
        write_files(plain, part, int8)
        sides[name] = onnx_model.load(part, args.threads).predict
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1, help="of every side")
    parser.add_argument("--plan", default="full")
    parser.add_argument("--encoder", default="minilm", help="a folder, a hub id, or minilm")
    parser.add_argument("--json", help="a file for the ratios of p50")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    recipe = peer.real_or_embedded()
    tasks, train = peer.load_rows(recipe)
    tasks = {n: t.model_copy(update={"pooling": "cls"}) for n, t in tasks.items()}
    encoder = load(args.encoder)
    theirs = peer.Peer(args.encoder, tasks, dropout=0.0).eval()
    names = {
        "one text": next(n for n, t in tasks.items() if not t.paired),
        "a pair": next(n for n, t in tasks.items() if t.paired),
    }

    @torch.inference_mode()
    def one_transformers_model(text):
        name = names["one text" if isinstance(text, str) else "a pair"]
        return theirs.logits(name, [(text,) if isinstance(text, str) else text]).softmax(-1)

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        own = own_sides(args, tasks, encoder, Path(folder))
        plan = plan_of(args.plan, tasks, encoder.shape)
        print(f"\nplan {plan.text}, {args.threads} thread(s), {args.texts // 2} texts of each kind")
        for kind, texts in some_texts(train, tasks, args.texts).items():
            one = served.Answering(theirs.trunk, theirs.heads[names[kind]])
            parts = [(text,) if isinstance(text, str) else text for text in texts]
            tokenizer = find(args.encoder) / "tokenizer.json"
            started = served.started(Path(folder), [one], tokenizer, parts, args.threads, one=True)
            with started as others:
                peers = {f"{way}, one model": p for way, p in others.items() if p is not None}
                times = clocked({BASE: one_transformers_model, **peers, **own}, texts)
            base = statistics.median(times[BASE])
            print(f"\n{kind:28}{'p50 ms':>9}{'p95 ms':>9}{'ratio of p50':>14}")
            for name, seconds in times.items():
                p50, p95 = np.quantile(seconds, [0.5, 0.95])
                found.setdefault(kind, {})[name] = p50 / base
                print(f"{name:28}{p50 * 1e3:9.2f}{p95 * 1e3:9.2f}{p50 / base:14.2f}")
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
