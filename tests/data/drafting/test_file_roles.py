"""Which task and split a file's name tells of."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.data.drafting.file_roles import grouped, unique_name
from bough.errors import UserError


def test_files_of_one_task_are_found_by_their_names() -> None:
    files = ["ids-sst-dev.csv", "ids-sst-train.csv", "quora.csv", "ids-sst-test-student.csv"]
    assert grouped(files) == {
        "ids-sst": {
            "train": Path("ids-sst-train.csv"),
            "dev": Path("ids-sst-dev.csv"),
            "test": Path("ids-sst-test-student.csv"),
        },
        "quora": {"train": Path("quora.csv")},
    }


def test_words_that_name_nothing_are_left_out() -> None:
    assert list(grouped(["reviews_all.tsv", "places/validation.csv", "places/train.csv"])) == [
        "reviews",
        "places",
    ]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["a-train.csv", "a-training.tsv"], "both look like the train rows of 'a'"),
        (["a-test.csv"], "there are no rows to learn from for 'a'"),
    ],
)
def test_files_that_cannot_be_placed(files: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        grouped(files)


def test_names_are_such_as_a_recipe_takes() -> None:
    assert unique_name("my file", ["my-file"]) == "my-file-2"
    assert unique_name("raw", []) == "raw-task"
