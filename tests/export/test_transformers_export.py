"""Exports for transformers answer as bough does: in its own classes, or with code of ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from bough.errors import UserError
from bough.export.transformers_export import write_transformers
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from bough.model.families.weight_names import CLASSIFIERS
from bough.plan.encoder_shape import FAMILIES
from tests import tiny
from tests.exports import CLOSE, TASKS, model_of
from tests.in_transformers import (
    CLASSIFIER,
    in_transformers,
    logits,
    same_answers,
    texts_for,
    vectors,
    written,
)

pytestmark = pytest.mark.usefixtures("own_modules")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("plan", ["full", "split@1", "lora:2:qkvoif", "feed:a>b", "pal:8"])
def test_trunks(family: str, plan: str, tmp_path: Path) -> None:
    tasks = {"a": tiny.task(pooling="cls"), "b": tiny.task(joint=True, pooling="cls")}
    model = model_of(plan, tasks, family)
    for task in tasks:
        why = written(model, tmp_path / task, task, trunk=True)
        assert ("pal adapters" in why) == (plan == "pal:8")
        texts = texts_for(tasks[task])
        states = in_transformers(tmp_path / task, texts, "AutoModel").last_hidden_state[:, 0]
        torch.testing.assert_close(states, vectors(model, task, texts), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("plan", ["late:IS", "feed:a>b>c", "pal:8, late:S"])
def test_a_trunk_ends_with_the_pooler(plan: str, tmp_path: Path) -> None:
    """Late layers and feeds come after it."""
    model, plain = model_of(plan, TASKS), model_of(plan.replace("late:", "frozen, late:"), TASKS)
    assert plain.plan.late == model.plan.late
    written(model, tmp_path / "b", "b", trunk=True)
    texts = texts_for(TASKS["b"])
    found = in_transformers(tmp_path / "b", texts, "AutoModel")
    pooler = next(c for c in model.plan.users() if c.place == "pooler")
    with torch.no_grad():
        pooled = model.network.cells[pooler.key](found.last_hidden_state[:, 0])
    torch.testing.assert_close(found.pooler_output, pooled, atol=CLOSE, rtol=0)
    if not model.plan.late:
        torch.testing.assert_close(pooled, vectors(model, "b", texts), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("family", sorted(CLASSIFIERS.keys() - {"electra"}))
@pytest.mark.parametrize("plan", ["full", "split@1", "separate, lora:2:qkvoif", "feed:b>c"])
def test_tasks(family: str, plan: str, tmp_path: Path) -> None:
    tasks = TASKS
    if family == "distilbert":  # its classifier has a ReLU layer where the others have a pooler
        tasks = {n: t.model_copy(update={"pooling": "cls"}) for n, t in TASKS.items()}
        plan += ", late:S"
    model = model_of(plan, tasks, family)
    for name, task in tasks.items():
        why = written(model, tmp_path / name, name)
        assert ("reads the output of 'b'" in why) == bool(model.plan.reading(name))
        assert bool(why) == bool(model.plan.reading(name))
        texts = texts_for(task)
        theirs = in_transformers(tmp_path / name, texts, CLASSIFIER).logits
        torch.testing.assert_close(theirs, logits(model, name, texts), atol=CLOSE, rtol=0)
        same_answers(model, name, tmp_path / name, texts)


@pytest.mark.parametrize(
    ("plan", "family", "changes", "why"),
    [
        ("pal:8", "bert", {}, "pal adapters in its trunk"),
        ("bottleneck:2", "bert", {}, "bottleneck adapters"),
        ("lowrank:2", "bert", {}, "lowrank adapters"),
        ("late:S", "bert", {}, "a tanh layer and a relu layer"),
        ("full", "bert", {"pooling": "cls"}, "has nothing between"),
        ("full", "electra", {}, "have a gelu layer"),
        ("full", "bert", {"pooling": "mean"}, "mean of the tokens"),
        ("late:S", "bert", {"pooling": "mean"}, "mean of the tokens"),
        ("full", "bert", {"head": "mlp"}, "a relu layer"),
        ("full", "distilbert", {"head": "mlp", "depth": 2, "width": 8}, "hidden layer of width 8"),
        ("full", "bert", {"loss": "ordinal"}, "loss 'ordinal'"),
        ("full", "bert", {"labels": ("no", "yes"), "loss": "mse"}, "loss 'mse'"),
        ("full", "bert", {"norm": True, "project": True}, "'norm' before its head"),
        ("full", "bert", {"project": True}, "'project' before its head"),
    ],
)
def test_the_reason_is_told(
    plan: str, family: str, changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    task = tiny.task(**changes)
    model = model_of(plan, {"a": task}, family)
    assert why in written(model, tmp_path / "a", "a")
    assert why in (tmp_path / "a" / "README.md").read_text()
    same_answers(model, "a", tmp_path / "a", texts_for(task))


@pytest.mark.parametrize(
    "plan", ["full", "split@3", "pal:64", "late:IS", "feed:sst>quora>sts", "lora:8"]
)
def test_minilm(plan: str, minilm: pretrained.Encoder, tmp_path: Path) -> None:
    tasks = {
        "sst": tiny.task(labels=tuple("01234")),
        "quora": tiny.task(joint=True, labels=("0", "1")),
        "sts": tiny.task(joint=True, number=True),
    }
    network = tiny.network(plan, tasks, minilm, stir=0.005)
    model = MultiTaskModel(network, minilm.tokenizer, 512)
    for name, task in tasks.items():
        written(model, tmp_path / name, name)
        texts: list[Text] = ["A fine film, if a little slow.", "Bad."]
        if task.paired:
            texts = [("How do trees grow?", "What makes a tree grow?"), ("One.", "Two.")]
        theirs = in_transformers(tmp_path / name, texts, CLASSIFIER).logits
        torch.testing.assert_close(theirs, logits(model, name, texts), atol=CLOSE, rtol=0)
        same_answers(model, name, tmp_path / name, texts)


@pytest.mark.parametrize("plan", ["full", "pal:8, feed:a>b>c"])
def test_the_folders_page_works(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is run as it is printed."""
    model = model_of(plan, TASKS)
    for name, task in TASKS.items():
        for trunk in (False, True):
            folder = tmp_path / f"{name} {trunk}"
            written(model, folder, name, trunk)
            page = (folder / "README.md").read_text()
            (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
            monkeypatch.chdir(folder)
            found: dict[str, Any] = {}
            exec(code, found)
            texts: Text = ("One text.", "Another text.") if task.paired else "One text."
            if trunk:
                assert found["vectors"].shape == (1, 16)
            elif task.labels:
                said = model.predict(texts, name)[name].probabilities
                assert found["answer"] == pytest.approx(said, abs=CLOSE)
            else:
                value = model.predict(texts, name)[name].value
                assert min(max(found["answer"], 0), 5) == pytest.approx(value, abs=CLOSE)


def test_what_is_written_is_said(tmp_path: Path) -> None:
    model_of("split@1", TASKS).save(tmp_path / "run")
    out = tmp_path / "out"
    with pytest.raises(UserError, match="different trunks; choose one with --task"):
        write_transformers(tmp_path / "run", out)
    with pytest.raises(UserError, match="no task 'aa'"):
        write_transformers(tmp_path / "run", out, "aa")
    with pytest.raises(UserError, match="name it with --task"):
        write_transformers(tmp_path / "run", out, trunk=True)
    assert not out.exists()
    told = write_transformers(tmp_path / "run", out, "a")
    assert told == f"{out}: load it with transformers.{CLASSIFIER}.from_pretrained({str(out)!r})"
    told = write_transformers(tmp_path / "run", tmp_path / "trunk", "a", trunk=True)
    assert "transformers.AutoModel.from_pretrained" in told
    assert pretrained.load(str(tmp_path / "trunk")).shape.layers == 2  # bough starts from it, too
    model_of("late:S", TASKS).save(tmp_path / "late")
    told = write_transformers(tmp_path / "late", tmp_path / "more", "a")
    assert "trust_remote_code=True); its code goes along, as task 'a' has a tanh layer" in told


@pytest.mark.parametrize(
    "settings", [{}, {"labels": ("no", "yes")}, {"pooling": "mean"}, {"loss": "ordinal"}]
)
def test_their_softmax_is_our_probabilities(settings: dict[str, Any], tmp_path: Path) -> None:
    """At the task's temperature, in their classes and with code of ours."""
    model = model_of("full", {"a": tiny.task(temperature=2.5, **settings)})
    written(model, tmp_path / "a", "a")
    texts = texts_for(model.tasks["a"])
    theirs = in_transformers(tmp_path / "a", texts, CLASSIFIER).logits.softmax(1)
    ours = [list((one["a"].probabilities or {}).values()) for one in model.predict(texts)]
    torch.testing.assert_close(theirs, torch.tensor(ours), atol=CLOSE, rtol=0)
