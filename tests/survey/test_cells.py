"""Cells change what they say in a recipe."""

from __future__ import annotations

from bough.comparison.finding import find_runs
from bough.comparison.groups import choose_baseline, group
from bough.recipe.recipe import Recipe
from bough.survey.spec import Survey
from bough.survey.survey import conduct
from tests.survey import files


def test_cells_of_a_grid_differ_by_name(base):
    asked = Survey.read({"recipe": base, "vary": {"plan": ["late:I", "late/I"]}})
    assert list(asked.resolved().cells) == ["late-I", "late-I-2"]


def test_a_survey_may_keep_some_tasks_and_say_something_about_each(base):
    base["training"]["weights"] = {"sentiment": 2, "questions": 3}
    asked = Survey.read(
        {"recipe": base, "fixed": {"tasks.*.dropout": 0.3},
         "vary": {"tasks": [["sentiment"], ["similarity", "questions"]]}}
    )  # fmt: skip
    one, two = asked.resolved().run_specs()
    assert (one.cell, two.cell) == ("sentiment", "similarity+questions")
    assert list(two.recipe.tasks) == ["similarity", "questions"]
    assert two.recipe.training.weights == {"questions": 3}
    assert {task.dropout for task in two.recipe.tasks.values()} == {0.3}


def test_a_cell_may_be_named_as_a_comparison_names_it(base, tmp_path, quick):
    keys = {"training.lr": [1e-3, 1e-4], "plan": ["full", "late:I, frozen"]}
    file = files.written(
        tmp_path, recipe=base, vary=keys, baseline="lr=0.0001_late-I-frozen", seeds=[4]
    )
    out = tmp_path / "out"
    conduct(file, out=out, only=["late:I, frozen, lr=0.0001", "lr=0.001_full"])
    assert set(files.starts(out)) == {"lr=0.0001_late-I-frozen-s4", "lr=0.001_full-s4"}
    runs = find_runs([out])
    variants, _ = group(runs, [Recipe.read(run.recipe_file) for run in runs])
    base = choose_baseline(variants, None)
    assert base.label == "late:I, frozen, lr=0.0001", "which is how a comparison calls it"
    assert base.cell == "lr=0.0001_late-I-frozen"
    assert choose_baseline(variants, "lr=0.001_full").label == "full, lr=0.001"


def test_the_demos_encoder_is_not_taken_for_a_folder_of_its_name(base, tmp_path, monkeypatch):
    (tmp_path / "minilm").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    asked = Survey.read({"recipe": base, "vary": {"encoder": ["minilm", "other"]}})
    encoders = [spec.recipe.encoder for spec in asked.resolved().run_specs()]
    assert encoders == ["minilm", str(tmp_path / "other")]
