"""A model answers in labels and values, in order, whatever is asked; and says what cannot be."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bough.data.dataset import Data
from bough.data.packing import by_tokens
from bough.data.tokens import tokenise
from bough.errors import UserError
from bough.inference import model as model_module
from bough.inference import torch_model
from bough.inference.torch_model import MultiTaskModel, untrained_model
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import Task
from tests import folders, tiny
from tests.inference.texts import LONG, SHORT, TEXTS, close

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


def test_order_is_kept_whatever_the_lengths(
    model: MultiTaskModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [model.predict(text) for text in TEXTS]
    for tokens, window in ((4096, 2048), (16, 4), (1, 1), (40, 3)):
        monkeypatch.setattr(torch_model, "by_tokens", partial(by_tokens, budget=tokens))
        monkeypatch.setattr(model_module, "WINDOW", window)
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


def test_what_is_cut_is_marked(model: MultiTaskModel) -> None:
    single = next(name for name, task in model.tasks.items() if not task.paired)
    long = "tree " * 2 * model.longest
    short, cut = model.predict(["a leaf", long], single)
    assert (short[single].cut, cut[single].cut) == (False, True)
    assert "cut" not in short[single].plain()
    assert cut[single].plain()["cut"] is True


def test_a_text_alone_in_a_tuple_or_list_is_a_text() -> None:
    tasks = {"names": Task(kind="tag", text="text", labels=("wood",), pooling="words")}
    source = tiny.encoder(layers=2)
    tagger = MultiTaskModel(tiny.network("full", tasks, source, stir=0.5), source.tokenizer, 40)
    text = "the old tree is green and the leaf was not bright"
    alone: Any = (text,)
    forms: list[Any] = [text, alone, [text]]
    for found in [*tagger.predict(forms), tagger.predict(alone)]:
        spans = found["names"].spans
        assert spans
        assert [span.text for span in spans] == [text[span.start : span.end] for span in spans]


def test_a_model_is_shown_in_a_line(model: MultiTaskModel) -> None:
    shown = repr(model)
    assert "\n" not in shown
    assert model.plan.text in shown
    assert all(name in shown for name in model.tasks)
    assert len(shown) < 300


# --- tasks ----------------------------------------------------------------------------------------


def test_tasks_can_be_chosen(model: MultiTaskModel) -> None:
    pair = (SHORT, LONG)
    every = model.predict(pair)
    assert list(model.predict(pair, tasks=["twin", "questions"])) == ["twin", "questions"]
    only = model.predict(pair, tasks="similarity")
    assert list(only) == ["similarity"]
    assert only["similarity"].value == pytest.approx(every["similarity"].value, abs=1e-5)


def test_tasks_are_settled_once(model: MultiTaskModel) -> None:
    """However many texts there are, and however often a name is said."""
    names = ["twin", "questions", "twin"]
    for found in model.predict([(SHORT, LONG)] * 3, tasks=(name for name in names)):
        assert list(found) == ["twin", "questions"]
    with pytest.raises(UserError, match="no task 'x'"):
        model.predict([], tasks="x")


def test_the_order_of_a_pair_matters_to_joint_tasks_alone(model: MultiTaskModel) -> None:
    one, other = model.predict([(SHORT, LONG), (LONG, SHORT)])
    assert one["questions"] != other["questions"]


def test_no_task_at_all(model: MultiTaskModel) -> None:
    with pytest.raises(UserError, match="tasks is empty"):
        model.predict(SHORT, tasks=[])


@pytest.mark.parametrize("tasks", [3, [None], [["sentiment"]], b"sentiment"])
def test_what_is_no_name_of_a_task(tasks: Any, model: MultiTaskModel) -> None:
    with pytest.raises(UserError, match=r"tasks is .*; expected a task's name, or several"):
        model.predict(SHORT, tasks=tasks)
    with pytest.raises(UserError, match=r"no task .* in this model"):
        model.encode(SHORT, task=tasks)


# --- mistakes -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("texts", [{"text": "a leaf"}, b"a leaf", 3])
def test_what_is_no_series_of_texts(texts: Any, model: MultiTaskModel) -> None:
    with pytest.raises(UserError, match=r"is no text; expected one, a pair as a tuple, or several"):
        model.predict(texts)


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


# --- vectors --------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_encoders_own_vector(pooling: str, tiny_folder: Path, tmp_path: Path) -> None:
    """As transformers and that pooling give it, whatever the tasks read."""
    folder = shutil.copytree(tiny_folder, tmp_path / "encoder")
    folders.sentence_encoder(folder, {"pooling_mode": pooling})
    recipe = folders.recipe(folder, rows=tiny_folder.parent / "rows", plan="split@1, late:I")
    recipe["tasks"]["sentiment"] = recipe["tasks"]["sentiment"] | {"pooling": "pooler"}
    settings = Recipe.read(recipe)
    model, _ = untrained_model(settings, Data.gather(settings))
    reference = transformers.AutoModel.from_pretrained(folder).eval()
    wanted = []
    for text in (SHORT, "Not bad at all!"):
        with torch.inference_mode():
            ids = torch.tensor([model.tokenizer.encode(text).ids])
            states = reference(ids).last_hidden_state[0]
        wanted.append((states.mean(0) if pooling == "mean" else states[0]).numpy())
    vectors = model.encode([SHORT, "Not bad at all!"])
    np.testing.assert_allclose(vectors, np.stack(wanted), atol=1e-5)
    assert not np.allclose(vectors, model.encode([SHORT, "Not bad at all!"], "sentiment"))
    unit = model.encode(SHORT, normalise=True)
    np.testing.assert_allclose(unit, wanted[0] / np.linalg.norm(wanted[0]), atol=1e-5)


def test_an_encoders_pooler(model: MultiTaskModel) -> None:
    """Read before the late layers; as the first head reads it where the model does not know."""
    assert model.facts["pooling"]["name"] == "pooler"
    late = model.encode(SHORT, "sentiment")
    assert not np.allclose(model.encode(SHORT), late)
    assert np.abs(model.encode(SHORT)).max() <= 1  # a tanh
    before = replace(model, facts={})
    assert np.array_equal(before.encode(SHORT), late)
    alone = model.only("twin")
    sequences, _ = tokenise([(SHORT,)], model.tokenizer, model.longest)
    wanted = model.vectors(sequences, "twin", "mean")  # its pooler is not in this model
    assert np.allclose(alone.encode(SHORT), wanted[0])


def test_an_answer_may_be_left_out(model: MultiTaskModel) -> None:
    texts = ["A fine film.", "Two hours I will not get back.", "It rained."]
    sure = [one["sentiment"].score or 0 for one in model.predict(texts)]
    least = sorted(sure)[1]
    for wrong in (2, -0.1, float("nan")):
        with pytest.raises(UserError, match=f"abstain is {wrong}; expected a probability"):
            model.predict(texts, abstain=wrong)
    for answers, score in zip(model.predict(texts, abstain=least), sure, strict=True):
        answer = answers["sentiment"]
        assert answer.abstained == (score < least)
        assert (answer.label is None) == answer.abstained
        assert answer.score == score
        assert ("label" in answer.plain()) != ("abstained" in answer.plain())
    pair = ("How old is he?", "What is his age?")
    assert model.predict(pair, abstain=1)["similarity"] == model.predict(pair)["similarity"]
