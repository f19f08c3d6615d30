"""A peer that answers, in its own environment: one ONNX model per task, asked over a pipe.

    python benchmarks/peers/answer.py WAY JOB

WAY is `openvino-bf16`, `openvino-int8` (nncf's static quantisation, calibrated on the texts) or
`onnxruntime-int8` (dynamic quantisation, channel by channel). JOB is a JSON file with the models'
files, the tokenizer's, the texts, the threads and the batch; `served.py` writes it. A line on
standard input is a question: `all` answers all texts by all models, sorted by length, in batches
padded to their longest; a number answers that one text by the first model. The answer is a
line with the seconds it took. The first line, before any question, is `ready`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

NAMES = ("input_ids", "attention_mask", "token_type_ids")
CALIBRATED = 100  # texts that show nncf how large activations are
Inputs = dict[str, np.ndarray]


def inputs_of(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> Inputs:
    found = tokenizer.encode_batch([tuple(t) if len(t) > 1 else t[0] for t in texts])
    columns = [[getattr(e, n) for e in found] for n in ("ids", "attention_mask", "type_ids")]
    return {name: np.array(rows, np.int64) for name, rows in zip(NAMES, columns, strict=True)}


def openvino(way: str, files: Iterable[str], job: dict, texts: list[Inputs]) -> list[Callable]:
    import nncf
    import openvino as ov

    core = ov.Core()
    # Many batches: a stream per thread. One text: all threads to it.
    hint = "LATENCY" if job["one"] else "THROUGHPUT"
    settings = {"PERFORMANCE_HINT": hint, "INFERENCE_NUM_THREADS": job["threads"]}
    settings["INFERENCE_PRECISION_HINT"] = "bf16"
    answers = []
    for file in files:
        model = core.read_model(file)
        if way.endswith("int8"):
            shown = nncf.Dataset(texts)
            model = nncf.quantize(
                model, shown, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(texts)
            )
        compiled = core.compile_model(model, "CPU", settings)
        answers.append(_openvino_queue(ov, compiled))
    return answers


def _openvino_queue(ov: Any, compiled: Any) -> Callable[[list[Inputs]], list[np.ndarray]]:
    request, queue = compiled.create_infer_request(), ov.AsyncInferQueue(compiled)

    def answer(batches: list[Inputs]) -> list[np.ndarray]:
        if len(batches) == 1:
            return [request.infer(batches[0])[compiled.output(0)].copy()]
        out: list[Any] = [None] * len(batches)

        def keep(finished: Any, number: int) -> None:
            out[number] = finished.get_output_tensor(0).data.copy()

        queue.set_callback(keep)
        for number, batch in enumerate(batches):
            queue.start_async(batch, number)
        queue.wait_all()
        return out

    return answer


def onnxruntime(way: str, files: Iterable[str], job: dict, texts: list[Inputs]) -> list[Callable]:
    import onnx
    import onnxruntime as ort
    from onnxruntime.quantization import quantize_dynamic

    options = ort.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    answers = []
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            small, model = f"{folder}/int8.onnx", onnx.load(file)
            del model.graph.value_info[:]  # shapes that the exporter noted, and nobody needs
            quantize_dynamic(model, small, per_channel=True)
            session = ort.InferenceSession(small, options, providers=["CPUExecutionProvider"])

        def answer(batches: list[Inputs], session: Any = session) -> list[np.ndarray]:
            return [session.run(None, batch)[0] for batch in batches]

        answers.append(answer)
    return answers


def main() -> None:
    way, file = sys.argv[1:]
    job = json.loads(Path(file).read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(job["tokenizer"])
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding()
    said, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    examples = [inputs_of(tokenizer, [text]) for text in job["texts"][:CALIBRATED]]
    build = openvino if way.startswith("openvino") else onnxruntime
    models = build(way, job["models"], job, examples)
    print("ready", file=said, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        if line.strip() == "all":
            answer_all(models, tokenizer, job)
        else:
            models[0]([inputs_of(tokenizer, [job["texts"][int(line)]])])
        print(time.perf_counter() - began, file=said, flush=True)


def answer_all(models: Sequence[Callable], tokenizer: Tokenizer, job: dict) -> None:
    texts, size = job["texts"], job["batch"]
    for answer in models:  # each model is a program of its own: it reads the texts itself
        order = np.argsort([sum(map(len, text)) for text in texts], kind="stable")
        parts = [order[i : i + size] for i in range(0, len(order), size)]
        answers = answer([inputs_of(tokenizer, [texts[i] for i in part]) for part in parts])
        assert sum(map(len, answers)) == len(texts)


if __name__ == "__main__":
    main()
