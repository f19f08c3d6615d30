"""Runs on other rows, or from other weights or teachers by the same name, are refused."""

from __future__ import annotations

import json
from pathlib import Path

from bough.comparison.compare import compare
from tests import simulated


def test_different_data_is_refused(make: simulated.Make, tmp_path: Path) -> None:
    first = make("a")
    other = simulated.data(tmp_path / "other", 41)
    second = simulated.run(tmp_path / "b", simulated.recipe(other, "separate", 0))
    text = simulated.refused([first, second])
    assert "different dev rows for task 'sst'" in text
    assert str(first) in text
    assert str(second) in text


def test_a_changed_training_set_is_refused(make: simulated.Make, tmp_path: Path) -> None:
    first = make("a")
    file = tmp_path / "data" / "sst-train.tsv"
    file.write_text(file.read_text() + "one more\t3\n")
    assert "different train rows for task 'sst'" in simulated.refused(
        [first, make("b", "separate")]
    )


def test_a_learning_curve_can_be_compared(make: simulated.Make, tmp_path: Path) -> None:
    """The recipes say that the train rows differ, and how; a file that changed is no such thing."""
    runs = [make("a"), make("b", **{"tasks.sst.limit.train": 10})]
    assert [v.label for v in compare(runs).variants] == [
        "sst.limit.train=null",
        "sst.limit.train=10",
    ]
    file = tmp_path / "data" / "sst-train.tsv"
    file.write_text(file.read_text().replace("tree", "bush"))
    late = make("c", "separate", **{"tasks.sst.limit.train": 10})
    assert "different train rows for task 'sst'" in simulated.refused([*runs, late])


def known(run: Path, **digests: object) -> Path:
    """The run, with what it knows its encoder and teachers by."""
    file = run / "environment.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | digests))
    return run


def test_other_weights_by_the_same_name_are_refused(make: simulated.Make) -> None:
    first, same = (
        known(make(n, seed=s), encoder="a", tokenizer="t") for n, s in (("a", 0), ("b", 1))
    )
    before = make("c", seed=2)  # has no digests
    assert [v.seeds for v in compare([before, first, same]).variants] == [(0, 1, 2)]
    weights = known(make("d", seed=3), encoder="b", tokenizer="t")
    said = simulated.refused([before, first, weights])
    assert said.startswith(f"{weights} learned from other weights of encoder 'minilm' than {first}")
    tokens = known(make("e", seed=4), encoder="a", tokenizer="u")
    assert "another tokenizer of encoder 'minilm'" in simulated.refused([first, tokens])
    named = known(make("f", seed=5, encoder="another"), encoder="c", tokenizer="v")
    assert len(compare([first, named]).variants) == 2


def test_other_teachers_by_the_same_name_are_refused(make: simulated.Make) -> None:
    taught = {"tasks.sst.teacher": "runs/large"}
    first = known(make("a", **taught), teachers={"sst": "a"})
    other = known(make("b", seed=1, **taught), teachers={"sst": "b"})
    assert "other answers of the teachers of task 'sst'" in simulated.refused([first, other])
    named = known(make("c", **{"tasks.sst.teacher": "runs/larger"}), teachers={"sst": "b"})
    assert len(compare([first, named, make("d", seed=2, **taught)]).variants) == 2


def test_a_split_that_is_not_there(make: simulated.Make) -> None:
    assert "has no test rows; it has train, dev" in simulated.refused([make("a")], split="test")
