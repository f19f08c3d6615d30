"""Exports for transformers answer as bough does: in its own classes, or with code of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bough.data.packing import Pack
from bough.data.tokens import tokenise
from bough.errors import UserError
from bough.export.transformers_export import READERS, write_checkpoint, write_transformers
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from bough.model.forward import PackedForward
from bough.plan.encoder_shape import FAMILIES
from bough.recipe.tasks import Task
from tests import tiny
from tests.exports import CLOSE, TASKS, by_number, mixed, model_of

CODE = "modeling_bough.py"
CLASSIFIER = "AutoModelForSequenceClassification"


@pytest.fixture(autouse=True)
def _own_modules(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers copies a folder's code into its cache: not into the user's."""
    from transformers import dynamic_module_utils

    folder = tmp_path_factory.mktemp("modules")
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(folder))
    monkeypatch.syspath_prepend(str(folder))


def in_transformers(folder: Path, texts: list[Text], kind: str) -> Any:
    """The loaded model's output for the texts, padded together."""
    import transformers

    trust = {"trust_remote_code": True} if (folder / CODE).exists() else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **trust)
    loader = getattr(transformers, kind)
    model, found = loader.from_pretrained(folder, output_loading_info=True, **trust)
    strange = {k: v for k, v in found.items() if v and not all("pooler" in name for name in v)}
    assert not strange
    firsts = [t if isinstance(t, str) else t[0] for t in texts]
    seconds = None if isinstance(texts[0], str) else [t[1] for t in texts]
    inputs = tokenizer(firsts, seconds, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**inputs)


def written(model: MultiTaskModel, folder: Path, task: str, trunk: bool = False) -> str:
    """Why the code went along, or nothing."""
    folder.mkdir()
    why = write_checkpoint(model, folder, task, trunk)
    assert bool(why) == (folder / CODE).exists()
    return why


def logits(model: MultiTaskModel, task: str, texts: list[Text]) -> Tensor:
    """Our outputs in transformers' form: [0, z] for two classes, numbers in their range."""
    asked = [(task,)] * len(texts)
    z = by_number(model.outputs(*model.forms(texts, asked), asked)[task])
    if model.tasks[task].kind == "regress":
        low, high = model.tasks[task].range or (0, 1)
        return low + z * (high - low)
    return torch.cat([torch.zeros_like(z), z], 1) if z.shape[1] == 1 else z


@torch.no_grad()
def vectors(model: MultiTaskModel, task: str, texts: list[Text]) -> Tensor:
    """What this task's head reads of each text or joint pair."""
    parts = [(text,) if isinstance(text, str) else text for text in texts]
    sequences, _ = tokenise(parts, model.tokenizer, model.longest)
    pack = Pack.of([(sequences, np.arange(len(texts)))])
    network = model.network
    forward = PackedForward(network.routing, network.cells, pack, [(task,)] * len(texts), None)
    forward.run()
    rows, index = forward.vectors()[task, task]
    return rows[index]


def texts_for(task: Task) -> list[Text]:
    return [t for t in mixed(14) if isinstance(t, tuple) == task.paired]


def same_answers(model: MultiTaskModel, name: str, folder: Path, texts: list[Text]) -> None:
    """Labels, probabilities and numbers, as a user reads them off."""
    theirs = in_transformers(folder, texts, CLASSIFIER).logits
    config = json.loads((folder / "config.json").read_text())
    labels = list(config["id2label"].values())
    for answer, row in zip(model.predict(texts, name), theirs, strict=True):
        said = answer[name]
        if said.probabilities is None:
            low, high = model.tasks[name].range or (0, 1)
            assert said.value == pytest.approx(min(max(float(row), low), high), abs=CLOSE)
        else:
            assert list(said.probabilities) == labels
            assert list(said.probabilities.values()) == pytest.approx(
                row.softmax(0).tolist(), abs=CLOSE
            )


# --- in transformers' own classes -----------------------------------------------------------------


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


@pytest.mark.parametrize("family", READERS)
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


# --- with code of ours ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "plan",
    [
        "pal:8, split@1",
        "lowrank:2@2",
        "bottleneck:2",
        "late:IS",
        "feed:a>b>c",
        "feed~:a>c, split@1, pal:4, lora:2:qkvoif, late:S",
    ],
)
def test_what_their_classes_have_no_place_for(family: str, plan: str, tmp_path: Path) -> None:
    sizes = {"embedding": 8} if family == "electra" else {}
    model = model_of(plan, TASKS, family, **sizes)
    for name, task in TASKS.items():
        written(model, tmp_path / name, name)
        texts = texts_for(task)
        theirs = in_transformers(tmp_path / name, texts, CLASSIFIER).logits
        torch.testing.assert_close(theirs, logits(model, name, texts), atol=CLOSE, rtol=0)


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


@pytest.mark.parametrize("fusion", ["concat", "attention"])
@pytest.mark.parametrize("reads_as", ["logits", "probabilities", "hidden"])
def test_what_a_task_reads(fusion: str, reads_as: str, tmp_path: Path) -> None:
    settings = {"fusion": fusion, "reads_as": reads_as}
    tasks = {
        "a": tiny.task(pooling="mean"),
        "b": tiny.task(joint=True, labels=("no", "yes"), head="mlp", **settings),
        "c": tiny.task(joint=True, number=True, **settings),
    }
    model = model_of("feed:a>b>c, late:S", tasks)
    written(model, tmp_path / "c", "c")
    texts = texts_for(tasks["c"])
    theirs = in_transformers(tmp_path / "c", texts, CLASSIFIER).logits
    torch.testing.assert_close(theirs, logits(model, "c", texts), atol=CLOSE, rtol=0)


def test_what_is_in_common_is_there_and_computed_once(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    for plan, least in (("feed:a>b", 1.0), ("separate, feed:a>b", 1.9)):
        model = model_of(plan, TASKS)
        folder = tmp_path / str(least)
        written(model, folder, "b")
        size = sum(t.numel() for t in load_file(folder / "model.safetensors").values())
        alone = sum(p.numel() for p in model.only("a").network.parameters())
        assert least * alone < size < (least + 0.2) * alone


def test_twin_pairs_stay_out(tmp_path: Path) -> None:
    model = model_of("full", {"a": tiny.task(twin=True)})
    with pytest.raises(UserError, match=r"apart.* --onnx instead, or its trunk alone with --trunk"):
        write_checkpoint(model, tmp_path, "a")
    assert list(tmp_path.iterdir()) == []
    written(model, tmp_path / "a", "a", trunk=True)


def test_it_needs_no_bough(tmp_path: Path) -> None:
    model = model_of("pal:8", TASKS)
    written(model, tmp_path / "a", "a")
    code = (tmp_path / "a" / CODE).read_text()
    assert not re.search(r"^\s*(import|from) bough", code, re.MULTILINE)


# --- the whole way --------------------------------------------------------------------------------


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
