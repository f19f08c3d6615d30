"""A model answers in labels and values, in order, and comes back from its folder as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import bough
from bough.errors import UserError
from bough.inference import base
from bough.inference import torch_model as room
from bough.inference.base import Answer
from bough.inference.torch_model import MultiTaskModel, load
from bough.runs.run_dir import Run
from bough.serve import task_info
from bough.training.api import train
from tests import folders

SHORT, LONG = "Fine.", "The train was late, the soup was cold and the film went on for ever. " * 3
TEXTS = [
    SHORT, (SHORT, LONG), LONG, ("Why?", "Why do dogs bark?"), "Not bad at all!", (LONG, SHORT),
    ("What is this?", "What is that?"), "ünïcödé 東京 🌳", "a b c d e f g h i j k l m n o p q r s",
]  # fmt: skip
PLAN = "split@1/questions+similarity, late:I, feed:questions>similarity"


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    recipe = folders.small(tiny_folder, steps=6, lr=1e-2, evaluate_rows=8, plan=PLAN)
    recipe["tasks"] |= {
        "twin": folders.TASKS["similarity"] | {"pair": "twin", "pooling": "mean", "head": "mlp"}
    }
    return train(recipe, tmp_path_factory.mktemp("model") / "run")


@pytest.fixture(scope="module")
def model(run: Run) -> MultiTaskModel:
    return load(run.folder)


def close(one: dict[str, Answer], other: dict[str, Answer]) -> bool:
    """The same but for the rounding of other batches."""
    return list(one) == list(other) and all(
        a.label == b.label
        and np.allclose(
            list((a.probabilities or {"": a.value or 0.0}).values()),
            list((b.probabilities or {"": b.value or 0.0}).values()),
            atol=1e-5,
        )
        for a, b in zip(one.values(), other.values(), strict=True)
    )


# --- answers --------------------------------------------------------------------------------------


def test_a_text_is_answered_in_labels(model: MultiTaskModel) -> None:
    found = model.predict(LONG)
    assert list(found) == ["sentiment"]
    answer = found["sentiment"]
    assert answer.probabilities is not None
    assert tuple(answer.probabilities) == model.tasks["sentiment"].labels
    assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert answer.score == max(answer.probabilities.values())
    assert answer.probabilities[answer.label or ""] == answer.score
    assert answer.value is None
    assert set(answer.plain()) == {"label", "score", "probabilities"}


def test_a_pair_is_answered_by_all_tasks_on_pairs(model: MultiTaskModel) -> None:
    found = model.predict((SHORT, LONG))
    assert list(found) == ["questions", "similarity", "twin"]
    assert found["questions"].label in ("different", "same", "0", "1")
    for name in ("similarity", "twin"):
        value = found[name].value
        assert value is not None
        assert 0 <= value <= 5
        assert found[name].plain() == {"value": round(value, 6)}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (5, "5 is no text"),
        ("half \ud800", r"text 1: \\ud800 is half a character"),
        (["fine", ()], r"text 2 is \(\)"),
        ([b"bytes"], "text 1 is b'bytes'"),
    ],
)
def test_what_is_no_text(texts: Any, said: str, model: MultiTaskModel) -> None:
    for ask in (model.predict, model.encode):
        with pytest.raises(UserError, match=said):
            ask(texts)


def test_no_task_at_all(model: MultiTaskModel) -> None:
    with pytest.raises(UserError, match="tasks is empty"):
        model.predict(SHORT, tasks=[])


@pytest.mark.parametrize("tasks", [3, [None], [["sentiment"]], b"sentiment"])
def test_what_is_no_name_of_a_task(tasks: Any, model: MultiTaskModel) -> None:
    with pytest.raises(UserError, match=r"tasks is .*; expected a task's name, or several"):
        model.predict(SHORT, tasks=tasks)
    with pytest.raises(UserError, match=r"no task .* in this model"):
        model.encode(SHORT, task=tasks)


def test_tasks_are_settled_once(model: MultiTaskModel) -> None:
    """However many texts there are, and however often a name is said."""
    names = ["twin", "questions", "twin"]
    for found in model.predict([(SHORT, LONG)] * 3, tasks=(name for name in names)):
        assert list(found) == ["twin", "questions"]
    with pytest.raises(UserError, match="no task 'x'"):
        model.predict([], tasks="x")


@pytest.mark.parametrize(
    ("device", "said"), [("foo", "expected auto, cpu"), ("cuda:99", "torch sees none such here")]
)
def test_a_device_that_is_not_there(device: str, said: str, run: Run) -> None:
    with pytest.raises(UserError, match=said):
        bough.load(run.folder, device=device)


def test_a_mistyped_run_is_not_looked_for_on_the_hub(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(run.folder, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"runs/frist: no such run .*did you mean 'first'\?"):
        bough.load("runs/frist")


def test_order_is_kept_whatever_the_lengths(
    model: MultiTaskModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [model.predict(text) for text in TEXTS]
    for tokens, window in ((4096, 2048), (16, 4), (1, 1), (40, 3)):
        monkeypatch.setattr(room, "TOKENS", tokens)
        monkeypatch.setattr(base, "WINDOW", window)
        together = model.predict(TEXTS)
        assert all(close(a, b) for a, b in zip(alone, together, strict=True))
    backwards = model.predict(TEXTS[::-1])
    assert all(close(a, b) for a, b in zip(alone, backwards[::-1], strict=True))


def test_any_iterable_will_do(model: MultiTaskModel) -> None:
    listed = model.predict(TEXTS)
    assert model.predict(text for text in TEXTS) == listed
    assert list(model.stream(iter(TEXTS))) == listed
    assert model.predict([]) == []
    endless = iter(lambda: SHORT, None)
    first = next(model.stream(endless))
    assert close(first, model.predict(SHORT))


def test_tasks_can_be_chosen(model: MultiTaskModel) -> None:
    pair = (SHORT, LONG)
    every = model.predict(pair)
    assert list(model.predict(pair, tasks=["twin", "questions"])) == ["twin", "questions"]
    only = model.predict(pair, tasks="similarity")
    assert list(only) == ["similarity"]
    assert only["similarity"].value == pytest.approx(every["similarity"].value, abs=1e-5)


def test_the_order_of_a_pair_matters_to_joint_tasks_alone(model: MultiTaskModel) -> None:
    one, other = model.predict([(SHORT, LONG), (LONG, SHORT)])
    assert one["questions"] != other["questions"]


@pytest.mark.parametrize(
    ("texts", "tasks", "said"),
    [
        (SHORT, "sentimant", r"no task 'sentimant' in this model .*; did you mean 'sentiment'\?"),
        (SHORT, "questions", "text 1: task 'questions' judges a pair, this is one text"),
        ([(SHORT, LONG)], ["sentiment"], "text 1: task 'sentiment' judges one text"),
        ([SHORT, ""], None, "text 2 is empty"),
        ([SHORT, ("a", " ")], None, "text 2 is empty"),
        ([SHORT, None], None, "text 2 is None; expected a text, or two of them as a tuple"),
        ([7], None, "text 1 is 7; expected"),
        ([("a", "b", "c")], None, r"text 1 is \('a', 'b', 'c'\); expected"),
        ([("a", 3)], None, "expected a text, or two"),
    ],
)
def test_mistakes_are_one_sentence(
    texts: Any, tasks: Any, said: str, model: MultiTaskModel
) -> None:
    with pytest.raises(UserError, match=said) as caught:
        model.predict(texts, tasks)
    assert "\n" not in str(caught.value)


def test_vectors(model: MultiTaskModel) -> None:
    texts = [SHORT, LONG, "Why?"]
    vectors = model.encode(texts)
    assert vectors.shape == (3, 16)
    assert vectors.dtype == np.float32
    for i, text in enumerate(texts):
        assert np.allclose(vectors[i], model.encode([text])[0], atol=1e-5)
    assert not np.allclose(vectors, model.encode(texts, "twin"))
    assert np.allclose(vectors, model.encode(text for text in texts))
    assert np.allclose(vectors[0], model.encode(SHORT), atol=1e-5)
    assert model.encode([]).shape == (0, 16)
    with pytest.raises(UserError, match="no task 'x'"):
        model.encode(texts, "x")
    with pytest.raises(UserError, match="text 2 is 7; expected a text"):
        model.encode([SHORT, 7])  # type: ignore[list-item]


def test_vectors_of_pairs(model: MultiTaskModel) -> None:
    pair = (SHORT, LONG)
    read = model.encode([pair, SHORT], "questions")
    assert np.allclose(read[0], model.encode(pair, "questions"), atol=1e-5)
    assert not np.allclose(read[0], read[1], atol=1e-3)
    with pytest.raises(UserError, match=r"text 2 is a pair, .* apart; encode them one by one"):
        model.encode([SHORT, pair], "twin")


# --- keeping --------------------------------------------------------------------------------------


def test_a_new_process_gives_the_same_bits(run: Run, model: MultiTaskModel) -> None:
    code = (
        "import json, sys, torch, bough; torch.set_num_threads(1)\n"
        "texts = [tuple(t) if isinstance(t, list) else t for t in json.load(sys.stdin)]\n"
        "found = bough.load(sys.argv[1]).predict(texts)\n"
        "print(json.dumps([{k: a.plain() for k, a in f.items()} for f in found]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, str(run.folder)], input=json.dumps(TEXTS), text=True,
        capture_output=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    here = [{k: a.plain() for k, a in found.items()} for found in model.predict(TEXTS)]
    assert json.loads(told.stdout) == here, "floats are written so that they come back the same"


def test_a_folder_with_other_things_in_it_is_not_saved_into(
    model: MultiTaskModel, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("my own")
    with pytest.raises(UserError, match="other files are in it; give a folder of the model's own"):
        model.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]
    with pytest.raises(UserError, match="is a file; give a folder for the model"):
        model.save(tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == "my own"


def test_what_is_cut_is_marked(model: MultiTaskModel) -> None:
    single = next(name for name, task in model.tasks.items() if not task.paired)
    long = "tree " * 2 * model.longest
    short, cut = model.predict(["a leaf", long], single)
    assert (short[single].cut, cut[single].cut) == (False, True)
    assert "cut" not in short[single].plain()
    assert cut[single].plain()["cut"] is True


def test_a_model_is_shown_in_a_line(model: MultiTaskModel) -> None:
    shown = repr(model)
    assert "\n" not in shown
    assert model.plan.text in shown
    assert all(name in shown for name in model.tasks)
    assert len(shown) < 300


@pytest.mark.parametrize("texts", [{"text": "a leaf"}, b"a leaf", 3])
def test_what_is_no_series_of_texts(texts: Any, model: MultiTaskModel) -> None:
    with pytest.raises(UserError, match=r"is no text; expected one, a pair as a tuple, or several"):
        model.predict(texts)


def test_public_names_can_be_completed() -> None:
    assert {"load", "train", "Recipe"} <= set(dir(bough))


def test_saved_and_loaded_again_and_again(run: Run, model: MultiTaskModel, tmp_path: Path) -> None:
    first = (run.model / "model.safetensors").read_bytes()
    answers = model.predict(TEXTS)
    folder = run.folder
    for number in range(3):
        folder = load(folder).save(tmp_path / str(number))
        assert (folder / "model.safetensors").read_bytes() == first
        assert load(folder).predict(TEXTS) == answers
    assert str(load(tmp_path / "2").plan) == str(model.plan)
    assert load(tmp_path / "2").tasks == model.tasks


def test_every_weight_is_there_once(run: Run, model: MultiTaskModel) -> None:
    with safe_open(run.model / "model.safetensors", "pt") as file:
        names = set(file.keys())
    parameters = dict(model.network.named_parameters())
    assert names == set(parameters)
    assert len({p.data_ptr() for p in parameters.values()}) == len(parameters)
    size = (run.model / "model.safetensors").stat().st_size
    assert 0 < size - 4 * sum(p.numel() for p in parameters.values()) < 20_000
    embeddings = [name for name in names if "words" in name]
    assert len(embeddings) == 1, "the shared vocabulary is not copied for each task"


def test_what_is_shared_stays_shared(run: Run) -> None:
    """A weight of a shared cell moves all of its users and no one else, also after loading."""
    before = load(run.folder)
    users = {cell.key: set(own) for cell, own in before.plan.users().items()}
    for key, own in users.items():
        changed = load(run.folder)
        with torch.no_grad():
            for parameter in changed.network.cells[key].parameters():
                parameter.add_(0.3)
        texts = [LONG, (SHORT, LONG)]
        moved = set()
        for old, new in zip(before.predict(texts), changed.predict(texts), strict=True):
            moved |= {task for task in old if old[task] != new[task]}
        readers = {"similarity"} if "questions" in own else set()
        assert moved == own | readers, key


def test_one_task_as_a_model_of_its_own(model: MultiTaskModel, tmp_path: Path) -> None:
    for task in model.tasks:
        alone = model.only(task)
        folder = alone.save(tmp_path / task)
        text: Any = (SHORT, LONG) if model.tasks[task].paired else LONG
        whole = model.predict(text, task)
        assert close(load(folder).predict(text, task), whole)
    sizes = [(tmp_path / t / "model.safetensors").stat().st_size for t in model.tasks]
    assert max(sizes) < 4 * sum(p.numel() for p in model.network.parameters())


def test_the_public_names(run: Run) -> None:
    assert bough.load is load
    assert isinstance(bough.load(run.folder), bough.MultiTaskModel)
    assert isinstance(bough.load(str(run.model)).predict(SHORT)["sentiment"], bough.Answer)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = bough.lode


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", "{", r"config.json: not a bough model's config \(JSONDecodeError"),
        ("config.json", "{}", r"not a bough model's config: plan is missing"),
        ("config.json", "[]", r"not a bough model's config: the config is \[\]; expected keys"),
        ("config.json", None, "no model there; expected a run or a folder with model.safetensors"),
        ("model.safetensors", None, "no model there"),
        ("model.safetensors", "cut", r"model.safetensors: cannot be read"),
        ("tokenizer.json", None, "tokenizer.json"),
        ("tokenizer.json", "{", "tokenizer.json"),
    ],
)
def test_broken_folders(
    file: str, content: str | None, said: str, model: MultiTaskModel, tmp_path: Path
) -> None:
    folder = model.save(tmp_path / "model")
    if content is None:
        (folder / file).unlink()
    elif content == "cut":
        (folder / file).write_bytes((folder / file).read_bytes()[:5000])
    else:
        (folder / file).write_text(content)
    with pytest.raises(UserError, match=said) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("tasks", [], r"tasks is \[\]; expected keys"),
        ("tasks", {}, "tasks is {}; expected at least one"),
        ("tasks.sentiment.labels", None, "tasks.sentiment.labels: null; a trained classify task"),
        ("tasks.twin.range", None, "tasks.twin.range: null; a trained regress task"),
        ("shape.family", "x", "shape.family: 'x' is not one of bert"),
        ("shape.width", -1, "shape.width is -1; expected a number greater"),
        ("shape.heads", 3, "shape.heads: width 16 is not a multiple of 3 heads"),
        ("shape.types", True, "shape.types is True; expected a valid integer"),
        ("shape.activation", "x", "shape.activation: activation 'x' is not one of"),
        ("longest", -1, "longest is -1; expected a number greater"),
        ("longest", 999, "longest: 999 tokens are more than the encoder's 64"),
        ("plan", "split@9", "plan 'split@9'"),
        ("facts", None, "facts is None; expected keys"),
        ("facts.examples", [["one"]], r"facts.examples.0: expected .* \(found \['one'\]\)"),
        ("facts.scores.dev.tasks.twin.metric", "f1", "twin.metric: there is no f1 beside it"),
    ],
)
def test_broken_configs(place: str, value: Any, said: str, run: Run, tmp_path: Path) -> None:
    config = json.loads((run.model / "config.json").read_text())
    *way, last = place.split(".")
    holder = config
    for key in way:
        holder = holder[key]
    holder[last] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"config.json: .*{said}") as caught:
        base.read_words(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_single_change_of_a_config_ends_in_a_traceback(run: Run, tmp_path: Path) -> None:
    whole = load(run.folder).only("sentiment").save(tmp_path)
    config = json.loads((whole / "config.json").read_text())

    def places(value: Any) -> Iterator[tuple[Any, Any]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in inner:
            yield value, key
            if isinstance(part, dict | list):
                yield from places(part)

    for holder, key in list(places(config)):
        kept = holder[key]
        for value in (None, [], -1, {"a": 1}):
            holder[key] = value
            (whole / "config.json").write_text(json.dumps(config))
            with suppress(UserError):
                model = load(whole)
                model.predict(SHORT)
                model.save_words(tmp_path)
                task_info.describe(model, "x")
        holder[key] = kept


def test_weights_of_another_plan(model: MultiTaskModel, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["plan"] = "separate"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"model.safetensors: does not fit .*config.json") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such run or model folder"):
        load(tmp_path / "nothing")
    with pytest.raises(UserError, match="no model there"):
        load(tmp_path)
