"""What is shown of a survey while it runs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from bough.recipe.recipe import Recipe
from bough.runs.run_dir import Run
from bough.survey.cells import RunSpec
from bough.survey.progress import LiveProgress, Progress
from bough.survey.survey import conduct
from bough.survey.survey_dir import SurveyDir
from tests.survey import files


def test_the_live_table_tells_how_far_it_is(base, tmp_path, quick):
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full", "separate"]})
    conduct(file, out=tmp_path / "out")
    folder = SurveyDir(tmp_path / "out")
    found = folder.survey
    assert found is not None
    screen = Console(file=io.StringIO(), width=120, force_terminal=True)
    progress = LiveProgress("mine", 4, 1, folder.run, console=screen)
    for spec in found.run_specs():
        progress.count(spec, "done")
    progress.seconds = [60]
    progress.show(found.run_specs())
    progress.close()
    paper = Console(width=120)
    with paper.capture() as text:
        paper.print(progress.live.get_renderable())
    assert "2 done of 4; 2 running; about 2 min left" in text.get()
    assert "step 4 of 12" in text.get()
    assert "separate" in text.get()


def test_time_left_by_the_runs_own_clocks(base, tmp_path, capsys):
    """A run that goes on took longer than what is seen of it; one under way is partly done."""
    progress = Progress("mine", 4, 1, lambda name: Run(tmp_path / name))
    specs = [RunSpec(cell, 0, Recipe.read(base)) for cell in "abcd"]  # of 12 steps
    for spec in specs[:2]:
        (tmp_path / spec.name).mkdir()
        progress.started(spec)
    assert progress.left() == "", "nothing is known yet"
    first, second = (tmp_path / spec.name for spec in specs[:2])
    (second / "metrics.jsonl").write_text('{"step": 4, "seconds": 40}\n')
    assert progress.left() == "about 7 min left", "(80 s of a run of 120 s, and three such)"
    (first / "cost.json").write_text('{"training_seconds": 240}')
    (first / "scores.json").write_text('{"dev": {}}')
    progress.ended(specs[0], "done")
    assert "about 9 min left" in capsys.readouterr().err, "80 s, and two runs as long as the first"


def test_runs_without_dev_scores_have_their_place_in_the_table():
    progress = Progress("mine", 1, 1, lambda name: Run(Path("nowhere")))
    assert progress.table().row_count == 0
    progress.count(RunSpec("full", 0, Recipe.model_construct(tasks={})), "done")
    assert progress.table().row_count == 1


def test_cells_may_judge_a_task_differently_or_not_at_all(tmp_path, capsys):
    def scores(**own: float) -> dict[str, Any]:
        (metric,) = own
        return {"tasks": {"sst": {"metric": metric, **own}}, "raw": 0.5, "normalised": 0.5}

    given = {"a": {"dev": scores(accuracy=0.25)}, "b": {"dev": scores(pearson=0.75)},
             "c": {"dev": {"tasks": {"sst": {"metric": "pearson"}}}}, "d": {}}  # fmt: skip
    progress = Progress("mine", 5, 1, lambda name: Run(tmp_path / name))
    for cell in (*given, "gone"):
        spec = RunSpec(cell, 0, Recipe.model_construct(tasks={}))
        if cell in given:
            (tmp_path / spec.name).mkdir()
            (tmp_path / spec.name / "scores.json").write_text(json.dumps(given[cell]))
        progress.ended(spec, "done")
    said = capsys.readouterr().err
    assert "a-s0: done (1 of 5)  sst 0.250  mean 0.500" in said
    assert "gone-s0: done (5 of 5)" in said
    paper = Console(width=120)
    with paper.capture() as text:
        paper.print(progress.table())
    lines = [line.split() for line in text.get().splitlines()]
    assert ["cell", "runs", "accuracy", "pearson", "mean"] in lines
    assert ["a", "1", ".250", ".500"] in lines
    assert ["b", "1", ".750", ".500"] in lines
    assert ["c", "1"] in lines


def test_seeds_are_told_by_their_ends_and_round_as_a_comparison_does(tmp_path):
    """A ± is half a 95 % interval everywhere, and the scatter of seeds is none."""
    progress = Progress("mine", 3, 1, lambda name: Run(tmp_path / name))
    for seed, score in enumerate((0.41249, 0.5, 0.6)):
        spec = RunSpec("full", seed, Recipe.model_construct(tasks={}))
        (tmp_path / spec.name).mkdir()
        task = {"metric": "pearson", "pearson": score}
        dev = {"tasks": {"sts": task}, "raw": score, "normalised": (1 + score) / 2}
        (tmp_path / spec.name / "scores.json").write_text(json.dumps({"dev": dev}))
        progress.count(spec, "done")
    paper = Console(width=120)
    with paper.capture() as text:
        paper.print(progress.table())
    said = text.get()
    assert ".504 (.412 to .600)" in said
    assert ".752 (.706 to .800)" in said
    assert "in brackets the lowest and the highest run" in said
    assert "±" not in said
