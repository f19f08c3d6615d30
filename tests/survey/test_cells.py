"""Cells go by names that are fit for folders, and change what they say in a recipe."""

from __future__ import annotations

from bough.comparison.groups import find_runs, group
from bough.recipe.recipe import Recipe
from bough.survey.cells import cell_name, find_cell
from bough.survey.spec import Survey
from bough.survey.survey import conduct
from tests.survey import files


def test_names_of_cells_are_fit_for_folders_and_differ(base):
    assert cell_name({"plan": "late:ISS/a+b, feed~:a>b"}) == "late-ISS-a+b-feed~-a-b"
    assert cell_name({"training.weights": {"a": 0.5, "b": 1}}) == "weights=a-0.5+b-1"
    assert cell_name({"tasks.a.loss": "mse", "tasks.b.loss": "bce"}) == "a.loss=mse_b.loss=bce"
    long = [cell_name({"plan": f"{'split@3, ' * 20}{end}"}) for end in ("a", "b")]
    assert len({*long}) == 2
    assert max(map(len, long)) <= 80
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
    said = str(conduct(file, out=out))
    assert said.count(" --baseline 'late:I, frozen, lr=0.0001'") == 2
    runs = find_runs([out])
    labels = [v.label for v in group(runs, [Recipe.read(run.recipe_file) for run in runs])[0]]
    assert "late:I, frozen, lr=0.0001" in labels, "which is how a comparison calls it"
    assert find_cell("b=1, a", ["a_b=1", "b=1_a"]) is None, "two could be meant"
    assert find_cell("full, tasks=x+y", ["full_x+y", "full_x"]) == "full_x+y"


def test_the_demos_encoder_is_not_taken_for_a_folder_of_its_name(base, tmp_path, monkeypatch):
    (tmp_path / "minilm").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    asked = Survey.read({"recipe": base, "vary": {"encoder": ["minilm", "other"]}})
    encoders = [spec.recipe.encoder for spec in asked.resolved().run_specs()]
    assert encoders == ["minilm", str(tmp_path / "other")]
