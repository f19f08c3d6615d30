"""A head's numbers in words, by kind."""

from __future__ import annotations

import pytest
import torch

from bough.inference.answers import Answer, answers_of, in_words
from bough.recipe.tasks import Task
from bough.spans.words import Words

MOOD = Task(kind="classify", text="x", labels=("bad", "good"))
PLACES = Task(kind="tag", text="text", labels=("place",))
TOPICS = Task(kind="multilabel", text="x", labels=("a", "b", "c"))
LIKE = Task(kind="regress", text=("x", "y"), range=(0, 5))


def test_a_class_has_its_probabilities() -> None:
    yes, no = answers_of(MOOD, torch.tensor([[2.0], [-1.0]]))
    assert (yes.label, no.label) == ("good", "bad")
    assert yes.score is not None
    assert yes.score == pytest.approx(float(torch.tensor(2.0).sigmoid()))
    assert yes.probabilities == pytest.approx({"bad": 1 - yes.score, "good": yes.score})
    assert yes.unless_below(0.99) == Answer(None, yes.score, yes.probabilities, abstained=True)


def test_it_reads_as_it_is_made() -> None:
    """Without what does not apply; what is empty, or 0, does."""
    for answer, told in (
        (Answer("good", 0.75, {"good": 0.75}), "label='good', score=0.75, probabilities={'go"),
        (Answer(value=0.0), "value=0.0)"),
        (Answer(spans=(), cut=True), "spans=(), cut=True)"),
        (Answer(labels=(), probabilities={"a": 0.5}), "probabilities={'a': 0.5}, labels=())"),
    ):
        assert repr(answer).startswith(f"Answer({told}")
        assert eval(repr(answer)) == answer


def test_a_number_is_in_its_range() -> None:
    low, high = answers_of(LIKE, torch.tensor([[-0.5], [0.5]]))
    assert (low.value, high.value) == (0.0, 2.5)
    assert low.plain() == {"value": 0.0}
    assert low.finite
    assert not Answer(value=float("nan")).finite


def test_of_several_labels_only_sure_ones_on_request() -> None:
    (found,) = answers_of(TOPICS, torch.tensor([[2.0, 0.5, -1.0]]))
    assert found.labels == ("a", "b")
    assert found.unless_below(0.55) is found
    some = found.unless_below(0.8)
    assert some == Answer(labels=("a",), probabilities=found.probabilities, abstained=True)
    assert some.plain()["abstained"] is True
    assert found.unless_below(1.0).labels == ()
    (none,) = answers_of(TOPICS, torch.tensor([[-2.0, -0.5, -1.0]]))
    assert none.unless_below(1.0) is none, "nothing was left out"


def test_spans_are_of_the_text() -> None:
    text = "Was in New Paris."
    words = Words.of(text, [(0, 0), (0, 3), (4, 6), (7, 10), (11, 16), (16, 17), (0, 0)])
    outputs = torch.zeros(5, 3)
    for word, tag in enumerate([0, 0, 1, 2, 0]):
        outputs[word, tag] = 9.0
    (found,) = answers_of(PLACES, outputs, [text], [words])
    assert found.spans is not None
    (place,) = found.spans
    assert (place.start, place.end, place.label, place.text) == (7, 16, "place", "New Paris")
    assert 0.99 < place.score < 1
    assert found.plain() == {
        "spans": [
            {"start": 7, "end": 16, "label": "place", "score": round(place.score, 6),
             "text": "New Paris"}
        ]
    }  # fmt: skip
    assert found.unless_below(0.9) is found
    assert found.unless_below(1.0) == Answer(spans=(), abstained=True)
    assert (found.number, found.finite) == (place.score, True)
    (broken,) = answers_of(PLACES, outputs * float("nan"), [text], [words])
    assert not broken.finite


def test_tasks_in_words() -> None:
    assert in_words(MOOD) == "2 classes"
    assert in_words(PLACES) == "spans, of 1 label"
    assert in_words(LIKE) == "a pair, a number from 0 to 5"
