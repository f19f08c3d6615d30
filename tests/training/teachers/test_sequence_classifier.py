"""Classifiers of transformers, opened here, answer as they do there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from bough.errors import UserError
from bough.inference.torch_model import MultiTaskModel
from bough.model.families.weight_names import CLASSIFIERS
from bough.recipe.tasks import Task
from bough.training.teachers.kept_answers import answered
from bough.training.teachers.sequence_classifier import NAME, is_classifier, open_classifier
from tests import tiny
from tests.exports import CLOSE, TASKS, model_of
from tests.in_transformers import texts_for, written
from tests.reference import MODELS, keep

LABELS = {0: "bad", 1: "good", 2: "NEUTRAL"}


def classifier(family: str, folder: Path, numbers: bool, bias: float = 0.0) -> Path:
    """A small random one, as transformers writes it; `bias` is added to BERT's output."""
    torch.manual_seed(1)
    more = {"num_labels": 1} if numbers else {"id2label": LABELS}
    config = transformers.AutoConfig.for_model(family, **MODELS[family][1], **more)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():  # biases start at 0, which would hide a mix-up
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
        if bias:
            model.classifier.bias.add_(bias)
    return keep(model, folder)


def texts(task: Task) -> list[tuple[str, ...]]:
    return [(text,) if isinstance(text, str) else text for text in texts_for(task)]


@pytest.mark.parametrize("family", CLASSIFIERS)
@pytest.mark.parametrize("paired", [False, True])
def test_classes(family: str, paired: bool, tmp_path: Path) -> None:
    folder = classifier(family, tmp_path / "m", numbers=False)
    asking = tiny.task(joint=paired)
    model = open_classifier(folder, asking, None)
    assert model.tasks[NAME].labels == ("bad", "good", "NEUTRAL")
    theirs = plain_transformers(folder, asking).softmax(1)
    torch.testing.assert_close(answered(model, NAME, texts(asking)), theirs, atol=CLOSE, rtol=0)


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_numbers(family: str, tmp_path: Path) -> None:
    folder = classifier(family, tmp_path / "m", numbers=True)
    asking = tiny.task(joint=True, number=True)
    model = open_classifier(folder, asking, (-20.0, 30.0))
    theirs = plain_transformers(folder, asking)
    torch.testing.assert_close(answered(model, NAME, texts(asking)), theirs, atol=1e-3, rtol=0)


def test_numbers_whose_range_nobody_knows(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "m", numbers=True, bias=3.0)
    asking = tiny.task(joint=True, number=True, range=None)
    model = open_classifier(folder, asking, None)
    theirs = plain_transformers(folder, asking)
    assert float(theirs.max()) > 1
    torch.testing.assert_close(answered(model, NAME, texts(asking)), theirs, atol=CLOSE, rtol=0)


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_labels(family: str, tmp_path: Path) -> None:
    folder = classifier(family, tmp_path / "m", numbers=False)
    config = json.loads((folder / "config.json").read_text())
    problem = {"problem_type": "multi_label_classification"}
    (folder / "config.json").write_text(json.dumps(config | problem))
    model = open_classifier(folder, tiny.task(), None)
    assert model.tasks[NAME].kind == "multilabel"
    theirs = plain_transformers(folder, tiny.task()).sigmoid()
    torch.testing.assert_close(
        answered(model, NAME, texts(tiny.task())), theirs, atol=CLOSE, rtol=0
    )


def plain_transformers(folder: Path, task: Task) -> torch.Tensor:
    """The logits, text by text: without padding nothing has to be masked."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rows = []
    for words in texts(task):
        inputs = tokenizer(*words, return_tensors="pt", return_token_type_ids=True)
        if model.config.model_type not in ("bert", "electra"):
            inputs.pop("token_type_ids")
        with torch.no_grad():
            rows.append(model(**inputs).logits)
    return torch.cat(rows)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("pooling", ["pooler", "cls", "mean"])
def test_what_bough_exports_comes_back(name: str, pooling: str, tmp_path: Path) -> None:
    """Also with code of ours beside it, which is not run."""
    tasks = {n: t.model_copy(update={"pooling": pooling}) for n, t in TASKS.items()}
    ours = model_of("split@1", tasks)
    why = written(ours, tmp_path / "m", name)
    assert bool(why) == (pooling != "pooler")
    assert is_classifier(tmp_path / "m")
    back = open_classifier(tmp_path / "m", tasks[name], None)
    expected = answered(ours, name, texts(tasks[name]))
    torch.testing.assert_close(
        answered(back, NAME, texts(tasks[name])), expected, atol=CLOSE, rtol=0
    )


def test_exports_that_are_more_than_a_path_are_refused(tmp_path: Path) -> None:
    ours: MultiTaskModel = model_of("pal:8", TASKS)
    written(ours, tmp_path / "m", "a")
    with pytest.raises(UserError, match="name the run it came from"):
        open_classifier(tmp_path / "m", TASKS["a"], None)


def test_mistakes(tmp_path: Path) -> None:
    folder = classifier("bert", tmp_path / "m", numbers=False)
    config = json.loads((folder / "config.json").read_text())

    def refused(said: str, **changes: object) -> None:
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(UserError, match=said):
            open_classifier(folder, tiny.task(), None)

    refused("do not fit", id2label={"0": "a", "1": "b"})
    refused("'classifier.dense.weight': it is no sequence classifier", model_type="roberta")
    refused("cannot run an encoder of type 'gpt2'", model_type="gpt2")
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        is_classifier(folder)
