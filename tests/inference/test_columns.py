"""Frames in and out: a row is answered by the tasks whose columns are there; answers as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas
import polars
import pyarrow
import pytest

from bough.errors import UserError
from bough.inference.answers import Answer
from bough.inference.columns import columns
from bough.inference.torch_model import MultiTaskModel
from tests.inference.texts import LONG, SHORT, close


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


# --- frames to be answered ------------------------------------------------------------------------

ROWS = [LONG, SHORT, "A third one, of middling length."]


def read_columns(model: MultiTaskModel, *tasks: str) -> dict[str, list[str]]:
    """A frame's columns: all that these tasks read, each with texts of its own."""
    names = [column for task in tasks for column in model.tasks[task].columns]
    return {name: ROWS[i % 2 :] + ROWS[: i % 2] for i, name in enumerate(dict.fromkeys(names))}


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_every_row_is_answered(model: MultiTaskModel, frame: Callable[[Any], Any]) -> None:
    texts = read_columns(model, "sentiment")
    found = model.predict(frame(texts))
    assert all(map(close, found, model.predict(next(iter(texts.values())))))
    assert len(found) == 3


def test_all_tasks_whose_columns_are_there(model: MultiTaskModel) -> None:
    texts = read_columns(model, *model.tasks)
    found = model.predict(pandas.DataFrame({"id": [7, 8, 9], **texts}))
    assert len(found) == 3
    for number, answers in enumerate(found):
        assert list(answers) == list(model.tasks)
        for task, answer in answers.items():
            parts = tuple(texts[column][number] for column in model.tasks[task].columns)
            text = parts[0] if len(parts) == 1 else (parts[0], parts[1])
            assert close({task: answer}, model.predict(text, task))


def test_only_the_tasks_that_are_asked(model: MultiTaskModel) -> None:
    frame = pandas.DataFrame(read_columns(model, *model.tasks))
    assert [list(answers) for answers in model.predict(frame, "twin")] == [["twin"]] * 3


def test_columns_of_other_names(model: MultiTaskModel) -> None:
    frame = pandas.DataFrame({"review": ROWS, "reply": ROWS[::-1]})
    found = model.predict(frame, text="review")
    assert [list(answers) for answers in found] == [["sentiment"]] * 3
    assert all(map(close, found, model.predict(ROWS)))
    pairs = list(zip(ROWS, ROWS[::-1], strict=True))
    found = model.predict(frame, text=["review", "reply"])
    assert all(map(close, found, model.predict(pairs)))
    found = list(model.stream(frame, "twin", text=("review", "reply")))
    assert all(map(close, found, model.predict(pairs, "twin")))


def test_columns_that_cannot_be_read(model: MultiTaskModel) -> None:
    frame = pandas.DataFrame({"review": ROWS, "reply": ROWS})
    mistakes: list[tuple[Any, Any, str]] = [
        (None, "revew", r"the frame has no column 'revew', which task .*; did you mean 'review'"),
        ("twin", "review", "text review: task 'twin' judges a pair: name two columns"),
        ("sentiment", ["review", "reply"], "task 'sentiment' judges one text: name one"),
        (None, ["review", "reply", "id"], "name at most two columns"),
    ]
    for tasks, text, said in mistakes:
        with pytest.raises(UserError, match=said):
            model.predict(frame, tasks, text=text)
    with pytest.raises(UserError, match=r"text names columns of a frame \(review\); this is none"):
        model.predict(ROWS, text="review")


def test_what_does_not_fit(model: MultiTaskModel) -> None:
    with pytest.raises(
        UserError, match=r"the frame: has the text columns of no task; expected sentiment: "
    ):
        model.predict(pandas.DataFrame({"x": ROWS}))
    one = pandas.DataFrame(read_columns(model, "sentiment"))
    with pytest.raises(UserError, match=r"the frame has no column .*, which task 'twin' reads"):
        model.predict(one, "twin")
    with pytest.raises(UserError, match=r"row 2 of the frame, column .*: nan is no text"):
        model.predict(pandas.DataFrame({one.columns[0]: ["x", float("nan")]}))
    with pytest.raises(UserError, match="give one: frame"):
        model.encode(one)


def test_a_column_is_texts(model: MultiTaskModel) -> None:
    texts = read_columns(model, "sentiment")
    series = pandas.DataFrame(texts).iloc[:, 0]
    assert all(map(close, model.predict(series), model.predict(series.tolist())))
