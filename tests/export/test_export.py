"""ONNX exports answer as bough does, under every plan and for every family."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch import Tensor

from bough.data.rows import Rows
from bough.errors import UserError
from bough.export import export
from bough.inference import onnx_model
from bough.inference.base import Text
from bough.inference.predict import answer_file
from bough.inference.torch_model import MultiTaskModel, load
from bough.model import pretrained
from bough.plan.encoder_shape import FAMILIES
from bough.plan.plan import Plan
from bough.recipe.tasks import Task
from tests import folders, serving, tiny
from tests.model.test_network import cases

CLOSE = 1e-4
TASKS = {
    "a": tiny.task(),
    "b": tiny.task(joint=True, number=True),
    "c": tiny.task(joint=True, labels=("no", "yes")),
}
TWINS = {
    "a": tiny.task(),
    "b": tiny.task(joint=True, number=True, pooling="mean"),
    "c": tiny.task(twin=True, labels=("no", "yes")),
    "d": tiny.task(twin=True, number=True, head="cosine"),
}
PLANS = [
    "full",
    "separate",
    "split@1/b+c",
    "row@1, late:SI",
    "pal:8",
    "lowrank:4@2",
    "lora:2:qkvoif",
    "bottleneck:4, split@1",
    "late:IS",
    "feed:a>b>c",
    "feed~:a>c, split@1, pal:4",
]


def sentences(count: int, seed: int = 0, longest: int = 9) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(tiny.WORDS, rng.integers(1, longest))) for _ in range(count)]


def mixed(count: int = 9) -> list[Text]:
    """Single texts and pairs by turns."""
    some = sentences(2 * count)
    return [
        a if i % 2 else (a, b) for i, (a, b) in enumerate(zip(some[::2], some[1::2], strict=True))
    ]


def model_of(
    plan: str | Plan, tasks: dict[str, Task], family: str = "bert", **sizes: Any
) -> MultiTaskModel:
    source = tiny.encoder(family, **sizes)
    fitting = {
        n: t
        if t.pooling != "pooler" or source.shape.pooler
        else t.model_copy(update={"pooling": "cls"})
        for n, t in tasks.items()
    }
    network = tiny.network(plan, fitting, source, stir=0.1)
    return MultiTaskModel(network, source.tokenizer, source.shape.longest)


def exported(model: MultiTaskModel, folder: Path, int8: bool = False) -> onnx_model.OnnxModel:
    folder.mkdir(exist_ok=True)
    export.export_model(model, folder, int8)
    for file in folder.glob("*.onnx"):
        onnx.checker.check_model(str(file), full_check=True)
    return onnx_model.load(folder, threads=1)


def by_number(found: tuple[list[int], Tensor]) -> Tensor:
    return found[1][torch.tensor(found[0]).argsort()]


def worst(model: MultiTaskModel, other: MultiTaskModel, texts: list[Text],
          asked: list[tuple[str, ...]] | None = None) -> float:  # fmt: skip
    """The largest difference of any output of any task."""
    asked = asked or [model.asked(text, None, i) for i, text in enumerate(texts)]
    ours, theirs = (m.outputs(*m.forms(texts, asked), asked) for m in (model, other))
    assert ours.keys() == theirs.keys()
    for task in ours:
        assert sorted(ours[task][0]) == sorted(theirs[task][0])
    return max(float((by_number(ours[t]) - by_number(theirs[t])).abs().max()) for t in ours)


# --- ONNX -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", PLANS)
def test_onnx_equals_bough_under_every_plan(plan: str, tmp_path: Path) -> None:
    model = model_of(plan, TASKS)
    other = exported(model, tmp_path)
    assert worst(model, other, mixed()) < CLOSE
    for task in TASKS:  # alone, so that the other tasks' branches do not run
        texts = [t for t in mixed() if isinstance(t, tuple) == TASKS[task].paired]
        assert worst(model, other, texts, [(task,)] * len(texts)) < CLOSE


@pytest.mark.parametrize("plan", ["full", "split@1", "feed:a>c>d", "feed:a>d, pal:4, late:SI"])
def test_twin_pairs_and_mean_pooling(plan: str, tmp_path: Path) -> None:
    model = model_of(plan, TWINS)
    other = exported(model, tmp_path)
    assert worst(model, other, mixed()) < CLOSE
    pairs = [t for t in mixed() if isinstance(t, tuple)]
    for tasks in (("d",), ("c",), ("b", "d")):
        assert worst(model, other, pairs, [tasks] * len(pairs)) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_onnx_equals_bough_for_every_family(family: str, tmp_path: Path) -> None:
    sizes = {"embedding": 8} if family == "electra" else {}
    model = model_of("split@1, lora:2", TASKS | {"d": TWINS["d"]}, family, **sizes)
    texts: list[Text] = [*mixed(), " ".join(["leaf"] * 34)]
    assert worst(model, exported(model, tmp_path), texts) < CLOSE


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_other_activations(activation: str, tmp_path: Path) -> None:
    model = model_of("full", TASKS, activation=activation)
    assert worst(model, exported(model, tmp_path), mixed()) < CLOSE


@pytest.mark.parametrize("head", ["cosine", "cosine-linear", "cosine-sigmoid"])
@pytest.mark.parametrize("number", [True, False])
def test_cosine_heads(head: str, number: bool, tmp_path: Path) -> None:
    settings = {"number": True} if number else {"labels": ("no", "yes")}
    task = tiny.task(twin=True, head=head, project=True, norm=True, **settings)
    model = model_of("feed:a>b", {"a": tiny.task(reads_as="hidden"), "b": task})
    assert (
        worst(model, exported(model, tmp_path), [t for t in mixed() if isinstance(t, tuple)])
        < CLOSE
    )


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), seed=st.integers(0, 99))
def test_onnx_equals_bough_for_any_plan_and_tasks(
    case: tuple[Plan, dict[str, Task]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plan, tasks = case
    source = tiny.encoder("mpnet" if seed % 2 else "bert", layers=plan.layers)
    network = tiny.network(plan, tasks, source, seed=seed, stir=0.1)
    model = MultiTaskModel(network, source.tokenizer, source.shape.longest)
    folder = tmp_path_factory.mktemp("any")
    # A plan's text cannot say everything a random table has: the skeleton comes from the model.
    export.export_model(model, folder)
    pairs = folder / "pairs.onnx"
    other = onnx_model.OnnxModel(
        network,
        model.tokenizer,
        model.longest,
        {},
        onnx_model.session(folder / "model.onnx", 1),
        onnx_model.session(pairs, 1) if pairs.exists() else None,
    )
    texts = [
        t
        for t in mixed()
        if any(len(k.columns) == len(t if isinstance(t, tuple) else (t,)) for k in tasks.values())
    ]
    assert worst(model, other, texts) < CLOSE


@pytest.mark.parametrize("name", ["ids", "types", "asked", "in", "first"])
def test_a_task_may_have_any_name(name: str, tmp_path: Path) -> None:
    for task in (TWINS["a"], TWINS["d"]):
        model = model_of("full", {name: task, "b": TWINS["b"]})
        folder = tmp_path / task.pair
        texts = [t for t in mixed() if isinstance(t, tuple) or not task.paired]
        assert worst(model, exported(model, folder), texts) < CLOSE


def test_weights_are_there_once(tmp_path: Path) -> None:
    """Streams that part keep sharing cells: the file grows by what is a task's own only."""
    sizes = {}
    for plan in ("full", "pal:8", "late:IS", "separate"):
        model = model_of(plan, TASKS)
        exported(model, tmp_path / plan.replace(":", ""))
        graph = onnx.load(tmp_path / plan.replace(":", "") / "model.onnx").graph
        names = [w.name for w in graph.initializer]
        assert len(names) == len(set(names))
        stored = sum(np.prod(w.dims) for w in graph.initializer if "/" in w.name)
        sizes[plan] = stored
        assert stored == sum(p.numel() for p in model.network.parameters())
    assert sizes["separate"] > 2 * sizes["full"]


def test_the_shared_prefix_is_there_once() -> None:
    from bough.export.onnx_graph import write_texts

    def norms(plan: str) -> int:
        graph = write_texts(model_of(plan, TASKS).network, {}).graph
        inner = [a.g for n in graph.node for a in n.attribute if a.name == "then_branch"]
        return sum(n.op_type == "LayerNormalization" for g in (graph, *inner) for n in g.node)

    assert norms("full") == 1 + 2 * 2
    assert norms("split@1") == 1 + 2 + 3 * 2
    assert norms("separate") == 3 * 5


def test_answers_come_in_order_and_in_labels(tmp_path: Path) -> None:
    model = model_of("split@1", TWINS)
    other = exported(model, tmp_path)
    texts = mixed(40)
    for ours, theirs in zip(model.predict(texts), other.predict(texts), strict=True):
        assert list(ours) == list(theirs)
        for task, answer in ours.items():
            assert answer.label == theirs[task].label
            assert (answer.score or answer.value) == pytest.approx(
                theirs[task].score or theirs[task].value, abs=CLOSE
            )
    single = sentences(7)
    np.testing.assert_allclose(model.encode(single, "b"), other.encode(single, "b"), atol=CLOSE)
    with pytest.raises(UserError, match="no task 'x'"):
        other.encode(single, "x")


def test_threads_share_a_session(tmp_path: Path) -> None:
    """As the server has it: the weights are common, each thread has a tokenizer of its own."""
    other = exported(model_of("split@1", TWINS), tmp_path)
    words = other.tokenizer.to_str()
    texts = [mixed(30)[i:] + mixed(30)[:i] for i in range(4)]
    alone = [other.predict(part) for part in texts]
    with ThreadPoolExecutor(4) as pool:
        copies = [replace(other, tokenizer=Tokenizer.from_str(words)) for _ in texts]
        together = list(pool.map(lambda model, part: model.predict(part), copies, texts))
    assert together == alone


@pytest.mark.parametrize("plan", ["full", "split@3", "pal:64", "late:IS", "feed:sst>quora>sts"])
def test_minilm_in_onnx(plan: str, minilm: pretrained.Encoder, tmp_path: Path) -> None:
    tasks = {
        "sst": tiny.task(labels=tuple("01234"), pooling="cls"),
        "quora": tiny.task(joint=True, labels=("0", "1")),
        "sts": tiny.task(joint=True, number=True, pooling="mean"),
    }
    network = tiny.network(plan, tasks, minilm, stir=0.005)
    model = MultiTaskModel(network, minilm.tokenizer, 512)
    texts: list[Text] = [
        "A fine film, if a little slow.",
        "Bad.",
        ("How do trees grow?", "What makes a tree grow, and how fast does it happen?"),
        ("One.", "Two."),
    ]
    export.export_model(model, tmp_path)
    assert worst(model, onnx_model.load(tmp_path, threads=1), texts) < CLOSE


# --- int8 -----------------------------------------------------------------------------------------


def test_int8_is_smaller_and_near(tmp_path: Path) -> None:
    sizes = {"width": 128, "embedding": 128, "inner": 256, "layers": 2}
    model = model_of("split@1", TASKS, **sizes)
    full, small = exported(model, tmp_path / "a"), exported(model, tmp_path / "b", int8=True)
    assert 0 < worst(full, small, mixed(30)) < 0.5
    bytes_ = [(tmp_path / name / "model.onnx").stat().st_size for name in "ab"]
    assert bytes_[1] < 0.4 * bytes_[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bough.training.api import train

    folder = tmp_path_factory.mktemp("run")
    made = folders.encoder(folder / "encoder", width=128)
    recipe = folders.recipe(made, rows=folders.data(folder / "data"), steps=3, plan="split@1")
    return train(recipe, folder / "run").folder


def test_int8_says_what_it_costs(run: Path, tmp_path: Path) -> None:
    told: list[str] = []
    out = export.write_onnx(run, tmp_path / "int8", int8=True, tolerance=1, tell=told.append)
    assert [line.split(":")[0] for line in told] == list(folders.TASKS)
    assert all("fp32" in line and "int8" in line and "change" in line for line in told)
    assert {"config.json", "model.onnx", "tokenizer.json"} <= {file.name for file in out.iterdir()}
    with pytest.raises(UserError, match="already there"):
        export.write_onnx(run, out)


@pytest.mark.parametrize("int8", [False, True])
def test_the_card_is_of_what_was_written(int8: bool, run: Path, tmp_path: Path) -> None:
    told: list[str] = []
    out = export.write_onnx(run, tmp_path / "x", int8=int8, tolerance=1, tell=told.append)
    body = (out / "README.md").read_text(encoding="utf-8")
    assert "bough serve FOLDER --runtime onnx" in body
    assert "bough.load" not in body
    code = body.split("```python\n")[1].split("```")[0]
    exec(code.replace('"this folder"', repr(str(out))), {})
    size = sum(file.stat().st_size for file in out.glob("*.onnx"))
    assert f"{size / 2**20:,.0f} MiB to serve{' in int8' * int8}" in body
    written = onnx_model.load(out, threads=1)
    scores = written.facts["scores"]["dev"]["tasks"]
    if not int8:
        assert scores == load(run).facts["scores"]["dev"]["tasks"]
        return
    assert written.facts["scores"].keys() == {"dev"}
    for line in told:  # "questions: accuracy fp32 0.5000  int8 0.6000  change +0.1000"
        name, metric, *_, after, _, _ = line.replace(":", "").split()
        assert f"{scores[name][metric]:.4f}" == after
        assert f"| dev | {name} | {metric} | {scores[name][metric]:.3f} |" in body


def test_int8_that_costs_too_much_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {name: {"accuracy": 0.9, "pearson": 0.9} for name in folders.TASKS}
    scores = iter([same, same | {"similarity": {"pearson": 0.88}}])
    monkeypatch.setattr(export, "dev_scores", lambda *_: next(scores))
    with pytest.raises(UserError, match=r"costs task 'similarity' 0\.0200 of its dev pearson"):
        export.write_onnx(run, tmp_path / "int8", int8=True, tell=lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_int8_needs_dev_rows(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run directory"):
        export.write_onnx(run / "model", tmp_path / "int8", int8=True)
    assert list(tmp_path.iterdir()) == []


def test_scores_are_those_of_the_rows(tmp_path: Path) -> None:
    model = model_of("full", {"a": TASKS["a"]})
    texts = sentences(20)
    labels = ["xyz".index(str(answer["a"].label)) for answer in model.predict(texts)]
    labels[0] = (labels[0] + 1) % 3
    rows = Rows([(text,) for text in texts], list(labels), [""] * 20, "memory", list(range(20)))
    assert export.dev_scores(model, {"a": rows})["a"]["accuracy"] == pytest.approx(0.95)
    found = export.dev_scores(exported(model, tmp_path), {"a": rows})["a"]
    assert found["accuracy"] == pytest.approx(0.95)


def test_large_graphs_keep_their_weights_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LARGEST", 1000)
    model = model_of("full", TASKS)
    other = exported(model, tmp_path)
    assert (tmp_path / "model.onnx.data").is_file()
    assert worst(model, other, mixed()) < CLOSE


def test_a_graph_that_cannot_be_run_is_not_left_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_save", lambda _, file: file.write_bytes(b"not a graph"))
    with pytest.raises(UserError, match="onnxruntime cannot read it"):
        export.write_onnx(run, tmp_path / "onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("plan", "tasks", "said"),
    [
        ("full", {"x": TWINS["a"]}, "its tasks are a,c,d"),
        ("full", {"d": TWINS["d"], "a": TWINS["a"], "c": TWINS["c"]}, "its tasks are a,c,d"),
        ("full", {"a": tiny.task(labels=("no", "yes"))}, "a differs"),
        ("full", {"c": tiny.task(twin=True, head="mlp")}, "c differs"),
        ("feed:a>c", {}, "c.reads.a differs"),
    ],
)
def test_a_graph_beside_another_models_config(
    plan: str, tasks: dict[str, Task], said: str, tmp_path: Path
) -> None:
    own = {name: TWINS[name] for name in "acd"}
    exported(model_of("full", own), tmp_path)
    model_of(plan, tasks if len(tasks) == 3 else own | tasks).save_words(tmp_path)
    with pytest.raises(UserError, match=re.escape(f"beside it ({said}); export the run anew")):
        onnx_model.load(tmp_path)


def test_files_are_answered_from_an_export(tmp_path: Path) -> None:
    model = serving.model()
    folder = export.write_onnx(model.save(tmp_path / "model"), tmp_path / "onnx")
    (tmp_path / "in.txt").write_text("the old tree\na leaf\n", encoding="utf-8")
    answer_file(folder, str(tmp_path / "in.txt"), tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    for line, text in zip(lines, ("the old tree", "a leaf"), strict=True):
        found = json.loads(line)
        assert found.pop("id") == text
        assert serving.same(found, model.predict(text))


def test_what_is_no_export_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no model\.onnx"):
        onnx_model.load(tmp_path)
    model = model_of("full", TASKS)
    exported(model, tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(UserError, match="onnxruntime cannot read it"):
        onnx_model.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="not a bough model's config"):
        onnx_model.load(tmp_path)
