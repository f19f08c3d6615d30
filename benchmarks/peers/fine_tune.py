"""What people would use instead of bough, on one cell of the benchmark of defaults.

    python benchmarks/peers/fine_tune.py WAY --encoder FOLDER --train CSV --test CSV --out JSON

WAY is `vectors` (sentence-transformers' vectors and a logistic regression, or a ridge regression
for numbers), `setfit` (SetFit with its defaults) or `trainer` (a Hugging Face Trainer with its
defaults: rate 5e-5, batches of 8, 3 epochs). Runs in an environment of its own:

    python -m venv peers && peers/bin/pip install setfit sentence-transformers transformers datasets

Whatever takes steps is given `--minutes` at most: its first steps are timed, and their number is
cut to what fits. `trainer` reads pairs as one sequence, `vectors` compares the two vectors,
`setfit` knows single texts and gets both joined.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", WANDB_DISABLED="true")

import numpy as np
import torch

TIMED = 4  # steps that are timed to see how many fit


def read(file: str) -> tuple[list[list[str]], list[str]]:
    with open(file, newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))[1:]
    return [row[:-1] for row in rows], [row[-1] for row in rows]


def vectors(args, train, labels, test) -> list:
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression, RidgeCV

    encoder = SentenceTransformer(args.encoder, device="cpu")

    def features(texts: list[list[str]]) -> np.ndarray:
        encoded = [
            encoder.encode([t[i] for t in texts], normalize_embeddings=True, batch_size=32)
            for i in range(len(texts[0]))
        ]
        if len(encoded) == 1:
            return encoded[0]
        a, b = encoded
        cosine = (a * b).sum(1, keepdims=True)
        return np.concatenate([a, b, abs(a - b), a * b, cosine], 1)

    if args.regress:
        model = RidgeCV(np.logspace(-3, 3, 13)).fit(features(train), np.array(labels, float))
    else:
        model = LogisticRegression(max_iter=1000).fit(features(train), labels)
    return model.predict(features(test)).tolist()


def setfit(args, train, labels, test) -> list:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    if args.regress:
        raise SystemExit("setfit has no regression")
    joined = [" [SEP] ".join(t) for t in train]
    data = Dataset.from_dict({"text": joined, "label": labels})

    def fitted(steps: int) -> SetFitModel:
        model = SetFitModel.from_pretrained(args.encoder, labels=sorted(set(labels)))
        settings = TrainingArguments(
            output_dir=args.out + ".setfit", max_steps=steps, seed=args.seed, report_to="none",
            save_strategy="no", show_progress_bar=False,
        )  # fmt: skip
        Trainer(model=model, args=settings, train_dataset=data).train()
        return model

    # Its default is one epoch over all pairs, of like and unlike rows as many: mostly far more than
    # the minutes allow.
    counts = np.unique(labels, return_counts=True)[1]
    like = int((counts * (counts + 1) // 2).sum())
    unlike = len(labels) * (len(labels) + 1) // 2 - like
    wanted = -(-2 * max(like, unlike) // 16)
    timed = pace(fitted)
    model = fitted(max(1, min(wanted, int((60 * args.minutes - timed[1]) / timed[0]))))
    return list(model.predict([" [SEP] ".join(t) for t in test]))


def trainer(args, train, labels, test) -> list:
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
    )  # fmt: skip

    names = sorted(set(labels))
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)

    class Rows(torch.utils.data.Dataset):
        def __init__(self, texts, values=None):
            columns = [[t[i] for t in texts] for i in range(len(texts[0]))]
            self.tokens = tokenizer(*columns, truncation=True, max_length=512)
            self.values = values

        def __len__(self) -> int:
            return len(self.tokens["input_ids"])

        def __getitem__(self, i):
            row = {key: value[i] for key, value in self.tokens.items()}
            if self.values is not None:
                row["labels"] = self.values[i]
            return row

    values = [float(n) for n in labels] if args.regress else [names.index(n) for n in labels]

    def fitted(steps: int) -> Trainer:
        torch.manual_seed(args.seed)
        model = AutoModelForSequenceClassification.from_pretrained(
            args.encoder, num_labels=1 if args.regress else len(names)
        )
        settings = TrainingArguments(
            output_dir=args.out + ".trainer", max_steps=steps, seed=args.seed, report_to="none",
            save_strategy="no", disable_tqdm=True, use_cpu=True, logging_strategy="no",
        )  # fmt: skip
        rows = Rows(train, values)
        own = Trainer(model, settings, train_dataset=rows, processing_class=tokenizer)
        own.train()
        return own

    timed = pace(fitted)
    wanted = 3 * -(-len(train) // 8)
    steps = max(1, min(wanted, int((60 * args.minutes - timed[1]) / timed[0])))
    outputs = fitted(steps).predict(Rows(test)).predictions
    return outputs[:, 0].tolist() if args.regress else [names[i] for i in outputs.argmax(1)]


def pace(fitted) -> tuple[float, float]:
    """Seconds of a step, and of all that comes with none, as if nothing else ran."""
    times = []
    for steps in (1, 1 + TIMED):
        began = time.process_time()
        fitted(steps)
        times.append((time.process_time() - began) / torch.get_num_threads())
    step = max(times[1] - times[0], 1e-3) / TIMED
    return step, max(times[0] - step, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=["vectors", "setfit", "trainer"])
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--regress", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train, labels = read(args.train)
    test, _ = read(args.test)
    began = time.monotonic()
    way = {"vectors": vectors, "setfit": setfit, "trainer": trainer}[args.way]
    predictions = way(args, train, labels, test)
    spent = time.monotonic() - began
    Path(args.out).write_text(json.dumps({"predictions": predictions, "seconds": spent}))


if __name__ == "__main__":
    main()
