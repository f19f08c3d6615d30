"""What a survey's file asks for, at its budgets; what makes no sense is refused in a sentence."""

from __future__ import annotations

import pytest
import yaml

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.survey.spec import Survey
from bough.survey.survey import conduct, prepare
from tests.survey import files


def test_a_grid_has_a_cell_for_every_combination_and_all_cells_come_before_the_next_seed(base):
    asked = Survey.read(
        {"recipe": base, "vary": {"plan": ["full", "split@1"], "training.lr": [1e-3, 1e-4]},
         "cells": {"mine": {"training.batch": 4}}, "seeds": [3, 5]}
    )  # fmt: skip
    specs = asked.resolved().run_specs()
    cells = ["full_lr=0.001", "full_lr=0.0001", "split@1_lr=0.001", "split@1_lr=0.0001", "mine"]
    assert [s.name for s in specs] == [f"{cell}-s{seed}" for seed in (3, 5) for cell in cells]
    assert specs[3].recipe.plan == "split@1"
    assert specs[3].recipe.training.lr == 1e-4
    assert specs[9].recipe.training.seed == 5
    assert specs[9].recipe.training.batch == 4
    assert specs[9].recipe.training.lr == base["training"]["lr"]


def test_a_budget_changes_keys_values_cells_seeds(base):
    asked = Survey.read(
        {"recipe": base, "fixed": {"training.lr": 1e-2}, "vary": {"plan": ["full", "split@1"]},
         "cells": {"mine": {"plan": "late:I", "training.batch": 4}}, "seeds": 3,
         "budgets": {
             "small": {"fixed": {"training.steps": 2}},
             "large": {"vary": {"plan": ["separate"]}, "cells": {"mine": {"plan": "late:S"}},
                       "seeds": 1, "fixed": {"training.lr": 1e-3}},
         }}
    )  # fmt: skip
    small, large = asked.resolved("small"), asked.resolved("large")
    assert asked.resolved() == small, "the first budget is the usual one"
    assert len(small.run_specs()) == 9
    assert {s.recipe.training.steps for s in small.run_specs()} == {2}
    assert {s.recipe.training.lr for s in small.run_specs()} == {1e-2}
    assert [(s.cell, s.recipe.plan) for s in large.run_specs()] == [
        ("separate", "separate"),
        ("mine", "late:S"),
    ]
    assert {s.recipe.training.lr for s in large.run_specs()} == {1e-3}
    assert large.run_specs()[1].recipe.training.batch == 4


def test_what_is_resolved_is_complete_and_reads_back_the_same(base, tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    file = files.written(
        tmp_path, recipe="base.yaml", vary={"plan": ["full"]}, asks="Is ${HOME} ours?"
    )
    resolved = Survey.read(file).resolved(threads=7)
    (tmp_path / "resolved.yaml").write_text(resolved.dump(), encoding="utf-8")
    again = Survey.read(tmp_path / "resolved.yaml")
    assert again == resolved
    assert again.run_specs() == resolved.run_specs()
    assert resolved.base == Recipe.read(base), "threads that the recipe names are kept"
    del base["threads"]
    assert (
        Survey.read({"recipe": base, "vary": {"plan": ["full"]}}).resolved(None, 7).base.threads
        == 7
    )


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({}, "an empty survey: give it `vary`, `cells` or `search`"),
        ({"vary": {"plan": []}}, "vary.plan is .*expected at least one"),
        ({"vary": {"training.lrr": [1]}}, "cell 'lrr=1': .*training.lrr is no key .*mean 'lr'"),
        ({"vary": {"training.lr": [-1]}}, "cell 'lr=-1': .*training.lr is -1; expected"),
        ({"varry": {}}, "varry is no key of a survey; did you mean 'vary'"),
        ({"cells": {"a/b": {}}}, "'a/b' is to be a folder's name"),
        ({"cells": {"full": {}}, "vary": {"plan": ["full"]}}, "'full' is in the grid already"),
        ({"cells": {"x": {"tasks": ["sentimant"]}}}, "no task 'sentimant'.*did you mean"),
        ({"cells": {"x": {"tasks": []}}}, "cell 'x': `tasks` is empty"),
        ({"vary": {"plan": ["full"]}, "seeds": 0}, "seeds: expected a number of seeds"),
        ({"vary": {"plan": ["full"]}, "seeds": [1, 1]}, "seeds: expected .* different seeds"),
        ({"vary": {"training.seed": [1, 2]}}, "training.seed .*name the seeds in `seeds`"),
        ({"cells": {"x": {"tasks": ["questions"], "training.select": "sentiment"}}},
         "cell 'x': .*'sentiment' is no score"),
        ({"vary": {"plan": ["splt@1"]}}, r"asked.yaml line \d+: .*plan 'splt@1': .*'split@1'"),
        ({"vary": {"plan": ["full"]}, "fixed": {"training.step": 3}},
         r"asked.yaml line \d+: fixed: .*training.step is no key .*did you mean 'steps'"),
        ({"cells": {"x": {"plan": "ful"}}}, r"asked.yaml line \d+: cell 'x': plan 'ful'"),
        ({"vary": {"plan": ["full"]}, "budgets": {"b": {"vary": {"plan": ["ful"]}}}},
         r"asked.yaml line \d+: cell 'ful'"),
        ({"vary": {"plan": ["full", "split@1"]}, "baseline": "fulll"},
         r"asked.yaml line \d+: baseline is 'fulll'; expected the name of a cell \('full', "
         r"'split@1'\), or its label in a comparison; did you mean 'full'\?"),
        ({"vary": {"training.sampling": ["eech"]}}, "training.sampling: 'eech' is none of"),
        ({"vary": {"training.combine": ["pcgrat"]}}, "training.combine: 'pcgrat' is none of"),
        ({"recipe": "nowhere.yaml"}, "recipe 'nowhere.yaml': no such file, looked for"),
        ({"recipe": {"tasks": {}}}, "recipe: .*tasks"),
        ({"search": {"space": {}}}, "search.space is .*expected at least one"),
        ({"search": {"space": {"training.lr": {"low": 2, "high": 1}}}}, "low below high"),
        ({"search": {"space": {"plan": [1]}}, "vary": {"plan": ["full"]}}, "either a search"),
        ({"search": {"space": {"x.y": [1]}}}, "search.space: .*x is no key of a recipe"),
        ({"search": {"space": {"plan": ["full"]}, "objectives": ["size"]}}, "nothing to search"),
        ({"vary": {"plan": ["full"]}, "budgets": {"small": {"vary": {"plam": ["full"]}}}},
         "budgets.small.vary: plam is no key of `vary`.*did you mean 'plan'"),
    ],
)  # fmt: skip
def test_a_survey_that_makes_no_sense_is_refused_in_a_sentence(base, tmp_path, keys, sentence):
    file = files.written(tmp_path, **{"recipe": base, **keys})
    with pytest.raises(UserError, match=sentence) as refused:
        conduct(file, out=tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    "baseline", ["full_lr=0.001", "lr=0.001, full", "split@1, lr=0.001", "late", "late:I"]
)
def test_a_baseline_is_a_cell_or_what_a_comparison_will_call_it(base, tmp_path, baseline):
    keys = {"plan": ["full", "split@1"], "training.lr": [1e-3, 1e-4]}
    cells = {"late": {"plan": "late:I"}}
    file = files.written(tmp_path, recipe=base, vary=keys, cells=cells, baseline=baseline)
    assert prepare(file, tmp_path / "out")[1].baseline == baseline


def test_a_recipe_is_told_from_a_survey(base, tmp_path):
    file = files.written(tmp_path, **base)
    with pytest.raises(UserError, match=r"asked.yaml: is a recipe, and not a survey"):
        conduct(file)


def test_a_base_that_is_not_there_is_looked_for_once(base, tmp_path, monkeypatch):
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    file = files.written(tmp_path, recipe="recipie.yaml", vary={"plan": ["full"]})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"line 1: .*no such file.*mean 'recipe.yaml'\?") as refused:
        conduct(file.name)
    assert str(refused.value).count(f"{tmp_path}/recipie.yaml") == 1


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "none.yaml").write_text("# nothing\n")
    with pytest.raises(UserError, match="is empty; expected at least `recipe`"):
        conduct(tmp_path / "none.yaml")
