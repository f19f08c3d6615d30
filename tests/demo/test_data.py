"""The embedded data: clean, split without leaks, and not to be solved by counting."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from bough.demo import SAMPLES, copy_files, folder, recipe
from bough.errors import UserError
from tools.demo_data import questions, sentiment
from tools.demo_data.generate import SIZES

TASKS = ("sentiment", "questions", "similarity")
LABEL = {"sentiment": "label", "questions": "label", "similarity": "score"}


def table(task: str, split: str) -> list[dict[str, str]]:
    with (folder() / f"{task}-{split}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def texts(task: str, split: str) -> list[str]:
    return [row[name] for row in table(task, split) for name in row if name != LABEL[task]]


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def common(a: str, b: str) -> float:
    return len(words(a) & words(b)) / len(words(a) | words(b))


@pytest.mark.parametrize("task", TASKS)
def test_sizes_and_no_row_twice(task: str) -> None:
    for split, size in SIZES.items():
        rows = [tuple(row.values()) for row in table(task, split)]
        assert len(rows) == size
        assert len(set(rows)) == size


@pytest.mark.parametrize("task", TASKS)
def test_dev_shares_no_sentence_with_train(task: str) -> None:
    train, dev = ({text.lower() for text in texts(task, split)} for split in ("train", "dev"))
    assert not train & dev


@pytest.mark.parametrize("task", TASKS)
def test_samples_are_fresh(task: str) -> None:
    known = {*texts(task, "train"), *texts(task, "dev")}
    assert SAMPLES[task]
    assert not known & {text for sample in SAMPLES[task] for text in sample}


@pytest.mark.parametrize("task", TASKS)
def test_texts_are_tidy(task: str) -> None:
    for text in texts(task, "train") + texts(task, "dev"):
        assert text == text.strip()
        assert text[0].isupper(), text
        assert not re.search(r"[{}\[\]<>*=|]|  | [,.;:?]|,[.,;]|\.\.|\bthe the\b", text), text
        assert not re.search(r"\ba [aeio]", text), text
        assert not re.search(r"\ban [^aeiouhAEIOU]", text), text
        assert len(text.split()) <= 32, text


@pytest.mark.parametrize("split", ["train", "dev"])
def test_levels_and_labels_are_balanced(split: str) -> None:
    levels = Counter(row["label"] for row in table("sentiment", split))
    assert set(levels) == set(sentiment.LEVELS)
    assert max(levels.values()) - min(levels.values()) <= 2
    labels = Counter(row["label"] for row in table("questions", split))
    assert set(labels) == set(questions.LABELS)
    assert labels["same"] == 0.4 * sum(labels.values())


@pytest.mark.parametrize("split", ["train", "dev"])
def test_scores_use_the_whole_range_in_steps(split: str) -> None:
    scores = [float(row["score"]) for row in table("similarity", split)]
    assert {min(scores), max(scores)} == {0, 5}
    assert all(abs(score * 5 - round(score * 5)) < 1e-9 for score in scores)
    tiers = Counter(min(4, int(score)) for score in scores)
    assert all(count >= 0.08 * len(scores) for count in tiers.values()), tiers


@pytest.mark.parametrize("split", ["train", "dev"])
def test_common_words_do_not_tell_questions_apart(split: str) -> None:
    rows = table("questions", split)
    pairs = [(common(row["question1"], row["question2"]), row["label"]) for row in rows]
    for least in [number / 20 for number in range(21)]:
        right = sum((share >= least) == (label == "same") for share, label in pairs)
        assert right / len(pairs) < 0.7


def test_the_recipe_names_files_columns_and_labels_that_exist() -> None:
    tasks = yaml.safe_load(recipe().read_text(encoding="utf-8"))["tasks"]
    assert tuple(tasks) == TASKS == tuple(SAMPLES)
    for name, task in tasks.items():
        columns = [task["text"]] if isinstance(task["text"], str) else task["text"]
        for split in ("train", "dev"):
            assert task[split] == f"{name}-{split}.csv"
            rows = table(name, split)
            assert list(rows[0]) == [*columns, task["label"]]
            if "labels" in task:
                assert {row[task["label"]] for row in rows} == set(task["labels"])


def test_train_never_names_a_place_that_is_kept_for_dev() -> None:
    assert not any("Krakow" in text for task in TASKS for text in texts(task, "train"))
    assert any("Krakow" in text for text in texts("questions", "dev"))


def test_files_to_try_bough_on(tmp_path: Path) -> None:
    written = copy_files(tmp_path)
    assert [file.name for file in written] == [f"{name}.csv" for name in sorted(TASKS)]
    assert written[0].read_bytes() == (folder() / "questions-train.csv").read_bytes()
    written[1].write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="is there already"):
        copy_files(tmp_path)
    assert written[1].read_text(encoding="utf-8") == "mine"
    with pytest.raises(UserError, match="no such folder"):
        copy_files(tmp_path / "none")
