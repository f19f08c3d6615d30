"""Runs become variants that carry what differs as their label."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bough.comparison import tables
from bough.comparison.compare import Comparison, compare
from bough.comparison.groups import _labels
from bough.comparison.verdict import verdict
from tests import simulated


def test_runs_that_differ_by_seed_are_one_variant(comparison: Comparison) -> None:
    assert [(v.label, v.seeds) for v in comparison.variants] == [
        ("full", (0, 1, 2)),
        ("separate", (0, 1, 2)),
    ]
    assert comparison.baseline.label == "separate"  # it shares least
    assert comparison.columns() == ["sst", "quora", "sts", "raw", "normalised"]


def test_labels_tell_what_differs(make: simulated.Make) -> None:
    runs = [
        make("a", "full", **{"training.lr": 1e-4}),
        make("b", "full", **{"training.lr": 2e-5}),
        make("c", "split@3", **{"training.lr": 1e-4}),
    ]
    comparison = compare(runs)
    labels = [v.label for v in comparison.variants]
    assert labels == ["full, lr=0.0001", "full, lr=2e-05", "split@3, lr=0.0001"]
    assert compare(runs, baseline="split@3").baseline.label == "split@3, lr=0.0001"
    assert "several variants have that plan" in simulated.refused(runs, baseline="full")


def test_keys_of_a_task_that_some_lack_tell_the_others_apart(make: simulated.Make) -> None:
    runs = [
        make("a", "full", **{"tasks.quora.weight": 2.0}),
        make("b", "full", **{"tasks.quora.weight": 5.0}),
        make("c", "full", tasks=("sst", "sts")),
    ]
    comparison = compare(runs, tasks=["sst"])
    assert [v.label for v in comparison.variants] == [
        "quora.weight=2, tasks=sst+quora+sts",
        "quora.weight=5, tasks=sst+quora+sts",
        "tasks=sst+sts",
    ]
    for v in comparison.variants:
        own = v.runs[0].scores["dev"]["tasks"]["sst"]["accuracy"]
        assert comparison.scores[v.label]["sst"].value == pytest.approx(own)


def test_labels_are_never_shared(make: simulated.Make) -> None:
    close = [make(n, **{"training.lr": lr}) for n, lr in (("a", 1.0000001e-4), ("b", 1.0000002e-4))]
    assert [v.label for v in compare(close).variants] == ["lr=0.00010000001", "lr=0.00010000002"]
    flat: list[dict[str, Any]] = [
        {"plan": "full", "x.y": 1},
        {"plan": "full", "x.y": "1"},
        {"plan": "full"},
    ]
    settings: list[dict[str, Any]] = [{"x.y": 1}, {"x.y": "1"}, {}]
    assert _labels(settings, flat) == ["y=1", 'y="1"', "full"]
    assert _labels([{}, {}, {}], flat) == ["full", "full (2)", "full (3)"]
    assert _labels([{"x.y": 1}, {}], [{"plan": "full", "x.y": 1, "z.y": 2}] * 2)[0] == "x.y=1"


def test_two_spellings_are_one_plan(make: simulated.Make) -> None:
    comparison = compare([make("a", "split@6", 0), make("b", "split@6/sst/quora/sts", 1)])
    assert len(comparison.variants) == 1


def test_a_moved_data_folder_is_no_variant(make: simulated.Make, tmp_path: Path) -> None:
    first = make("a", seed=0)
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    second = simulated.run(tmp_path / "b", simulated.recipe(tmp_path / "moved", "full", 1))
    assert len(compare([first, second]).variants) == 1


@pytest.mark.parametrize(
    ("key", "values"),
    [("threads", (2, "null")), ("device", ("auto", "cpu")), ("training.save_every", (60, 5)),
     ("training.keep_states", ("true", "false")), ("training.log_every", (20, 1)),
     ("training.cosines_every", (0, 10)), ("pretraining", ("null", "{epochs: 2}"))],
)  # fmt: skip
def test_how_a_run_is_computed_makes_no_variant(
    make: simulated.Make, key: str, values: tuple[Any, Any]
) -> None:
    """A run by hand is a further seed of a survey's, which writes its threads down."""
    runs = [make(f"run-{seed}", seed=seed, **{key: value}) for seed, value in enumerate(values)]
    (variant,) = compare(runs).variants
    assert (variant.label, variant.seeds) == ("full", (0, 1))
    again = make("again", seed=0, **{key: values[1]})
    assert f"left out: {again}, the same recipe and seed as {runs[0]}" in (
        compare([*runs, again]).notes
    )


def test_tasks_that_only_some_runs_have(make: simulated.Make) -> None:
    runs = [make("a", "full"), make("b", "full", tasks=("sst", "sts"))]
    assert "name the tasks to compare with --tasks sst,quora,sts" in simulated.refused(runs)
    comparison = compare(runs, tasks=["sst", "quora"], baseline="tasks=sst+quora+sts")
    one = comparison.scores["tasks=sst+sts"]
    assert set(one) == {"sst"}
    assert one["sst"].difference is not None
    assert "task by task" in verdict(comparison).headline
    assert "| tasks=sst+sts | 1 |" in tables.markdown(comparison)
    assert verdict(comparison).tasks["sst"].startswith("Anecdote (one seed): sst: ")
    runs += [make("c", "full", 1), make("d", "full", 1, tasks=("sst", "sts"))]
    two = verdict(compare(runs, tasks=["sst", "quora"], baseline="tasks=sst+quora+sts"))
    assert two.tasks["sst"].startswith("Anecdote (2 seeds): sst")


def test_tasks_that_only_help_do_not_count(make: simulated.Make) -> None:
    """As in the runs' own means; one that nothing learns from is there to be judged."""
    helps = {"training.phases": "[{steps: 9}, {steps: 9, tasks: [sst, sts]}]"}
    runs = [make("a", **helps), make("b", "separate", **helps)]
    comparison = compare(runs)
    assert list(comparison.metrics) == ["sst", "sts"]
    assert "left out, it only helps: quora; name it with --tasks" in comparison.notes
    own = comparison.scores["full"]
    assert own["raw"].value == pytest.approx((own["sst"].value + own["sts"].value) / 2)
    asked = compare(runs, tasks=["sst", "quora"])
    assert list(asked.metrics) == ["sst", "quora"]
    assert not any("only helps" in note for note in asked.notes)
    without = make("c", tasks=("sst", "sts"))
    assert list(compare([*runs, without]).metrics) == ["sst", "sts"]
    judged = make("d", **helps, **{"tasks.quora.weight": 0})
    assert list(compare(judged).metrics) == ["sst", "quora", "sts"]
    other = make("e", **{"training.phases": "[{steps: 9}, {steps: 9, tasks: [quora]}]"})
    assert "no task counts in every run" in simulated.refused([*runs, other])


def test_runs_without_the_tasks_asked_for_are_named_and_left_out(make: simulated.Make) -> None:
    runs = [make("a", "full", tasks=("sst",)), make("b", "frozen", tasks=("sst",))]
    others = [make(f"c{seed}", "full", seed=seed, tasks=("sts",)) for seed in (0, 1)]
    comparison = compare([*runs, *others], tasks=["sst"], baseline="frozen")
    assert {v.label for v in comparison.variants} == {"full", "frozen"}
    assert [n for n in comparison.notes if "left out" in n] == [
        f"left out, without sst: {others[0]}, {others[1]}"
    ]
    assert not any("a copy" in note for note in comparison.notes)


def test_the_same_run_twice_counts_once(make: simulated.Make) -> None:
    runs = [make("a"), make("b")]
    comparison = compare([runs[0], *runs])
    assert comparison.variants[0].seeds == (0,)
    assert any("the same recipe and seed" in note for note in comparison.notes)


def test_another_metric_is_another_task(make: simulated.Make) -> None:
    runs = [make("a"), make("b", **{"tasks.sst.metric": "f1"})]
    assert "these are different tasks" in simulated.refused(runs)


# --- copies ---------------------------------------------------------------------------------------


def copied(run: Path, target: Path, seed: int) -> Path:
    """The same run under another seed's name."""
    shutil.copytree(run, target)
    recipe = target / "recipe.yaml"
    text = recipe.read_text()
    assert "seed: 0" in text
    recipe.write_text(text.replace("seed: 0", f"seed: {seed}"))
    return target


def test_a_copied_run_is_no_further_seed(make: simulated.Make, tmp_path: Path) -> None:
    first, second = make("a", seed=0), make("b", seed=1)
    copy = copied(first, tmp_path / "copy", 7)
    comparison = compare([first, second, copy])
    (v,) = comparison.variants
    assert v.seeds == (0, 1)
    assert [len(several) for several in comparison.answers.values()] == [2, 2, 2]
    assert f"left out, a copy: {copy} (seed 7) answers all rows exactly as {first} (seed 0)" in (
        comparison.notes
    )


def test_a_copy_in_another_variant_is_told(make: simulated.Make, tmp_path: Path) -> None:
    first = make("a", seed=0)
    copy = copied(first, tmp_path / "copy", 7)
    (copy / "plan.txt").write_text("separate\n")
    comparison = compare([first, copy])
    assert [v.seeds for v in comparison.variants] == [(0,), (7,)]
    assert any(note.startswith(f"a copy? {copy} (seed 7)") for note in comparison.notes)


def test_one_seed_may_answer_alike_in_two_variants(make: simulated.Make, tmp_path: Path) -> None:
    """As where a setting has no effect."""
    copy = copied(make("a", seed=0), tmp_path / "copy", 0)
    (copy / "plan.txt").write_text("separate\n")
    assert not any("copy" in note for note in compare([tmp_path / "a", copy]).notes)
