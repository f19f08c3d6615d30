"""A task whose commonest class alone would score as much is named, before anything else is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.comparison import tables
from bough.comparison.compare import Comparison, compare
from bough.comparison.verdict import verdict
from bough.formatting import number
from bough.recipe.tasks import Task
from bough.reports.page import page
from bough.scoring.evaluate import learned_nothing
from bough.scoring.metrics import judged
from tests import simulated
from tests.html_page import Page

ENDS = "which always answering the commonest class would have"


def runs(folder: Path, skills: dict[str, float], seeds: int = 2) -> list[Path]:
    """Of variants that know so much of quora, of whose 120 dev rows half have either class."""
    source = simulated.data(folder / "data")
    made = []
    for plan, skill in skills.items():
        for seed in range(seeds):
            recipe = simulated.recipe(source, plan, seed)
            made.append(simulated.run(folder / f"{plan}-{seed}", recipe, {"quora": skill}))
    return made


def said(comparison: Comparison) -> str:
    """The one note, which stands first wherever the comparison is told."""
    (note,) = comparison.unlearned.values()
    assert list(comparison.unlearned) == ["quora"]
    assert comparison.as_dict()["notes"][0] == note
    assert verdict(comparison).lines()[1] == f"Note: {note}"
    plain = " ".join(str(comparison).split())
    assert plain.index(f"- Note: {note}") < plain.index(f"- {verdict(comparison).tasks['sst']}")
    assert tables.markdown(comparison).splitlines()[2] == f"- {tables._escaped(note)}"
    words = Page(page(comparison)).words
    assert words.index(note) < words.index(verdict(comparison).tasks["sst"])
    assert words.count(note) == 2, "in the verdict, and where the answers are shown"
    return note


def test_a_variant_that_learned_nothing_is_named(tmp_path: Path) -> None:
    comparison = compare(runs(tmp_path, {"separate": 0.0, "full": -0.8}))
    value = comparison.scores["full"]["quora"].value
    assert said(comparison) == (
        f"quora: accuracy is not shown by full ({number(value)}) to be above .500, {ENDS}"
    )


def test_by_any_variant(tmp_path: Path) -> None:
    note = said(compare(runs(tmp_path, {"separate": -0.8, "full": -0.8})))
    assert note.startswith("quora: accuracy is not shown by any variant (.")
    assert note.endswith(f"to be above .500, {ENDS}")


def test_many_variants_are_counted(tmp_path: Path) -> None:
    plans = ["full", "split@1", "split@2", "split@3", "split@4", "split@5"]
    weak = dict.fromkeys(plans, -0.8)
    note = said(compare(runs(tmp_path, {"separate": 0.5, **weak}, seeds=1)))
    assert note.startswith("quora: accuracy is not shown by 6 of 7 variants (.")


def test_tasks_that_were_learned_have_no_note(comparison: Comparison) -> None:
    kinds = {name: several[0].kind for (_, name), several in comparison.answers.items()}
    assert kinds["sts"] == "regress"
    assert "sst" not in comparison.unlearned
    assert "sts" not in comparison.unlearned


@pytest.mark.parametrize("skill", [-1.2, -0.8, -0.6, -0.4, 0.0])
def test_one_run_is_told_what_it_was_told_by_training(tmp_path: Path, skill: float) -> None:
    comparison = compare(runs(tmp_path, {"full": skill}, seeds=1))
    (run,) = comparison.answers["full", "quora"]
    task = Task.model_validate({"kind": "classify", "text": "text", "labels": run.labels})
    own = judged(task, run.said, run.truth, True, run.probabilities) | {"commonest": 0.5}
    told = learned_nothing({"tasks": {"quora": own}})
    assert [note.replace("quora:", "task 'quora':") for note in comparison.unlearned.values()] == (
        told
    )
