"""XLM-R and mDeBERTa read texts in any script as transformers does, and so do tasks on them.

Their tokenizers are transformers' own classes on pieces of words that are learned here.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bough
from bough.data.tokens import tokenise
from bough.inference.answers import Answer, Entity
from bough.inference.load import load_torch
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from bough.model.pretrained import Encoder
from tests import exports, tiny
from tests.reference import DEBERTA, ROBERTA, reference

TEXTS = [
    "Фильм был долгим, но очень хорошим.", "Η ταινία ήταν πολύ καλή.", "الفيلم جميل جدا",
    "फिल्म बहुत अच्छी थी।", "这部电影非常好看。", "映画はとても面白かったです。",
    "영화가 아주 좋았다.",
    "ภาพยนตร์เรื่องนี้ดีมาก", "הסרט היה ארוך מאוד", "ფილმი ძალიან კარგი იყო",
    "e\u0301te\u0301 à l'e\u0301cole", "ﬁn Ⅳ ①", "🎬👩‍👩‍👧 👍🏽", "mixed текст 中文 عربي",
]  # fmt: skip
PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))


def pieces(specials: list[str]) -> list[tuple[str, float]]:
    """A vocabulary with scores: the special tokens, then all characters of the texts and the
    commonest of their pairs. Counted and not learned: a trainer's is another every time."""
    texts = (unicodedata.normalize("NFKC", text) for text in TEXTS)
    words = [f"\u2581{word}" for text in texts for word in text.split()]
    counts = Counter(
        word[start : start + size]
        for word in words
        for size in (1, 2)
        for start in range(len(word) - size + 1)
    )
    ordered = sorted(counts, key=lambda piece: (len(piece) > 1, -counts[piece], piece))
    chosen = ordered[: 320 - len(specials)]
    every = sum(counts[piece] for piece in chosen)
    scores = [(piece, math.log(counts[piece] / every)) for piece in chosen]
    return [*((name, 0.0) for name in specials), *scores]


@pytest.fixture(scope="module", params=["xlm-roberta", "deberta-v2"])
def theirs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, transformers.PreTrainedModel, Path]:
    """transformers' tokenizer and model, and the folder of both."""
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer: Any
    settings: dict[str, Any]
    if request.param == "xlm-roberta":
        vocabulary = pieces(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        tokenizer = transformers.XLMRobertaTokenizer(vocab=vocabulary)
        settings = {**ROBERTA, "type_vocab_size": 1}
    else:
        vocabulary = pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"])
        tokenizer = transformers.DebertaV2Tokenizer(vocab=vocabulary, unk_id=3)
        settings = DEBERTA
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 130}
    model = reference(request.param, {**settings, **sizes})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer, model, folder


@pytest.fixture(scope="module")
def encoder(theirs: tuple[Any, Any, Path]) -> Encoder:
    return pretrained.load(str(theirs[2]))


def test_tokens_are_those_of_transformers(theirs: tuple[Any, Any, Any], encoder: Encoder) -> None:
    both: list[tuple[str, ...]] = [*((text,) for text in TEXTS), *PAIRS]
    sequences, cut = tokenise(both, encoder.tokenizer, encoder.shape.longest)
    assert not cut.any()
    for number, parts in enumerate(both):
        start, end = sequences.bounds[number : number + 2]
        assert sequences.ids[start:end].tolist() == theirs[0](*parts)["input_ids"]
    known = set(sequences.ids.tolist())
    assert len(known) > 100  # pieces of words, not one unknown token after another


def test_vectors_are_those_of_transformers(theirs: tuple[Any, Any, Any], encoder: Encoder) -> None:
    tokenizer, model, _ = theirs
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**inputs).last_hidden_state[:, 0]
    network = tiny.network("full", {"a": tiny.task(pooling="cls")}, encoder)
    ours = MultiTaskModel(network, encoder.tokenizer, 128)
    torch.testing.assert_close(torch.from_numpy(ours.encode(TEXTS, "a")), states, atol=1e-5, rtol=0)


def test_a_task_on_them(encoder: Encoder, theirs: tuple[Any, Any, Path], tmp_path: Path) -> None:
    """Learned, saved, loaded and as ONNX would have it; entities by characters of the text."""
    rows = [
        {"text": text, "long": str(len(text) > 18), "first": [
            {"start": 0, "end": len(text.split()[0]), "label": "first"}]}
        for text in TEXTS * 2
    ]  # fmt: skip
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    common = {"text": "text", "train": str(file), "dev": str(file)}
    recipe: dict[str, Any] = {
        "encoder": str(theirs[2]),
        "tasks": {"long": {"kind": "classify", "label": "long", **common},
                  "first": {"kind": "tag", "label": "first", **common}},
        "training": {"steps": 60, "batch": 14, "lr": 1e-3, "dropout": 0, "log_every": 10},
    }  # fmt: skip
    run = bough.train(recipe, out=tmp_path / "run")
    losses = [entry["loss"] for entry in run.metrics() if "loss" in entry]
    assert all(losses[-1][task] < 0.9 * losses[0][task] for task in recipe["tasks"])
    model = load_torch(run)
    answers = model.predict(TEXTS)
    spans = [(text, span) for text, a in zip(TEXTS, answers, strict=True) for span in spans_of(a)]
    assert spans
    for text, span in spans:
        assert text[span.start : span.end] == span.text
        assert not span.text[0].isspace()
    exported = exports.untraced(model).predict(TEXTS)
    for ours, other in zip(answers, exported, strict=True):
        assert ours["long"].label == other["long"].label
        assert [span.text for span in spans_of(ours)] == [span.text for span in spans_of(other)]


def spans_of(answers: dict[str, Answer]) -> tuple[Entity, ...]:
    return answers["first"].spans or ()
