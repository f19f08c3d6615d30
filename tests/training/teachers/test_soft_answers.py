"""A teacher's classes and numbers in those of the task, or a refusal that names both."""

from __future__ import annotations

import pytest
import torch

from bough.errors import UserError
from bough.recipe.teacher import Teacher
from bough.training.teachers.soft_answers import SoftAnswers, decided, matched
from tests import tiny

TASK = tiny.task(labels=("bad", "fair", "good"))
SHARES = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])


def test_classes_are_matched_by_name_in_any_order_and_case() -> None:
    found = matched("t", TASK, Teacher(model="m"), SoftAnswers(SHARES, ("GOOD", "bad", "Fair")))
    torch.testing.assert_close(found, SHARES[:, [1, 2, 0]])


def test_or_by_a_map_which_may_join_them() -> None:
    teacher = Teacher(model="m", labels={"1": "bad", "2": "bad", "3": "fair", "4": "good"})
    shares = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    found = matched("t", TASK, teacher, SoftAnswers(shares, ("1", "2", "3", "4")))
    torch.testing.assert_close(found, torch.tensor([[0.3, 0.3, 0.4]]))


@pytest.mark.parametrize(
    ("theirs", "labels"),
    [
        (("LABEL_0", "LABEL_1", "LABEL_2"), None),
        (("bad", "good"), None),
        (("bad", "fair", "good", "superb"), None),
        (("1", "2", "3"), {"1": "bad", "2": "fair"}),
    ],
)
def test_others_are_refused_with_both_lists(
    theirs: tuple[str, ...], labels: dict[str, str] | None
) -> None:
    shares = torch.full((2, len(theirs)), 1 / len(theirs))
    with pytest.raises(UserError) as caught:
        matched("t", TASK, Teacher(model="m", labels=labels), SoftAnswers(shares, theirs))
    assert ", ".join(theirs) in str(caught.value)
    assert "bad, fair, good" in str(caught.value)
    assert "labels: {theirs: ours}" in str(caught.value)


def test_numbers_are_of_one_scale() -> None:
    task = tiny.task(number=True)
    said = SoftAnswers(torch.tensor([[0.0], [0.5], [1.2]]), None, (0.0, 1.0))
    with pytest.raises(UserError, match=r"from 0 to 1, and the task from 0 to 5.*range: \[0, 1\]"):
        matched("t", task, Teacher(model="m"), said)
    found = matched("t", task, Teacher(model="m", range=(0, 1)), said)
    torch.testing.assert_close(found, torch.tensor([[0.0], [2.5], [5.0]]))
    same = SoftAnswers(torch.tensor([[4.0]]), None, (0.0, 5.0))
    torch.testing.assert_close(matched("t", task, Teacher(model="m"), same), same.values)


def test_classes_are_no_numbers() -> None:
    with pytest.raises(UserError, match="answers with a number, and the task with classes"):
        matched("t", TASK, Teacher(model="m"), SoftAnswers(torch.ones(1, 1), None, (0, 1)))
    broken = SoftAnswers(torch.full((1, 3), torch.nan), TASK.labels)
    with pytest.raises(UserError, match="is no number"):
        matched("t", TASK, Teacher(model="m"), broken)


def test_of_several_labels_that_are_one_the_likeliest_counts() -> None:
    task = tiny.task(kind="multilabel", labels=("a", "b"))
    teacher = Teacher(model="m", labels={"x": "a", "y": "a", "z": "b"})
    said = SoftAnswers(torch.tensor([[0.9, 0.8, 0.3]]), ("x", "y", "z"))
    torch.testing.assert_close(matched("t", task, teacher, said), torch.tensor([[0.9, 0.3]]))


def test_what_soft_answers_come_to() -> None:
    shares = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.9]])
    assert decided(tiny.task(), shares).tolist() == [1, 2]
    several = tiny.task(kind="multilabel")
    assert decided(several, shares).tolist() == [[0, 0, 0], [1, 0, 1]]
    assert decided(tiny.task(number=True), shares[:, :1]).tolist() == pytest.approx([0.2, 0.6])
