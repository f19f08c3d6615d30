"""Answers as columns: what frames are made of."""

from __future__ import annotations

import pandas
import polars

from bough.inference.answer_columns import columns
from bough.inference.answers import Answer
from bough.inference.torch_model import MultiTaskModel


def test_a_frame_of_answers(model: MultiTaskModel) -> None:
    texts = ["A fine film.", "Two hours I will not get back."]
    answers = model.predict(texts)
    table = columns(answers)
    assert list(table) == ["sentiment", "sentiment.score"]
    for frame in (pandas.DataFrame(table), polars.DataFrame(table)):
        assert len(frame) == 2
        assert list(frame["sentiment"]) == [one["sentiment"].label for one in answers]
        assert list(frame["sentiment.score"]) == [one["sentiment"].score for one in answers]


def test_what_was_not_asked_about_is_empty() -> None:
    answers = [{"mood": Answer("good", 0.75, {"good": 0.75})}, {"near": Answer(value=4.5)}]
    assert columns(answers) == {
        "mood": ["good", None],
        "mood.score": [0.75, None],
        "near": [None, 4.5],
    }
    left_out = Answer("good", 0.4).unless_below(0.5)
    assert columns([{"mood": left_out}]) == {"mood": [None], "mood.score": [0.4]}
