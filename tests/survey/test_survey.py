"""Surveys: what a file asks for, runs as processes that may die, searches, budgets."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from rich.console import Console

from bough.comparison.groups import find_runs, group
from bough.data.dataset import Data
from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.runs.lock import locked
from bough.runs.run_dir import Run
from bough.survey import launcher
from bough.survey.launcher import Folder, Launcher, Listed
from bough.survey.progress import Board, LiveBoard, duration
from bough.survey.search import Trials
from bough.survey.spec import RunSpec, Survey, label, named
from bough.survey.survey import conduct
from bough.training.api import train
from tests import folders

MENDED = "mended.txt"  # where it is, runs of the seed 1 do not fail any more
PRETENDER = Path(__file__).parents[1] / "pretender.py"


@pytest.fixture
def base(tiny_folder: Path) -> dict[str, Any]:
    return {**folders.small(tiny_folder, steps=12), "threads": 1}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that take no time."""
    monkeypatch.setattr(launcher, "COMMAND", (sys.executable, str(PRETENDER)))


@pytest.fixture
def seed_1_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs that take no time, but for those of the seed 1, which fail until it is mended."""
    code = (
        "import pathlib, runpy, sys\n"
        f"mended = pathlib.Path({str(tmp_path / MENDED)!r}).exists()\n"
        "if sys.argv[-1].endswith('-s1') and not mended:\n"
        "    sys.exit('bough: no seed 1 today')\n"
        f"runpy.run_path({str(PRETENDER)!r})\n"
    )
    monkeypatch.setattr(launcher, "COMMAND", (sys.executable, "-c", code))


def written(folder: Path, **keys: Any) -> Path:
    file = folder / "asked.yaml"
    file.write_text(yaml.safe_dump(keys, sort_keys=False), encoding="utf-8")
    return file


def starts(folder: Path) -> dict[str, int]:
    """How often each run was begun or resumed."""
    found = sorted((folder / "runs").glob("*/starts.txt"))
    return {file.parent.name: len(file.read_text().splitlines()) for file in found}


# --- what a file asks for ------------------------------------------------------------------------


def test_a_grid_has_a_cell_for_every_combination_and_all_cells_come_before_the_next_seed(base):
    asked = Survey.read(
        {"recipe": base, "vary": {"plan": ["full", "split@1"], "training.lr": [1e-3, 1e-4]},
         "cells": {"mine": {"training.batch": 4}}, "seeds": [3, 5]}
    )  # fmt: skip
    orders = asked.resolved().orders()
    cells = ["full_lr=0.001", "full_lr=0.0001", "split@1_lr=0.001", "split@1_lr=0.0001", "mine"]
    assert [o.name for o in orders] == [f"{cell}-s{seed}" for seed in (3, 5) for cell in cells]
    assert orders[3].recipe.plan == "split@1"
    assert orders[3].recipe.training.lr == 1e-4
    assert orders[9].recipe.training.seed == 5
    assert orders[9].recipe.training.batch == 4
    assert orders[9].recipe.training.lr == base["training"]["lr"]


def test_names_of_cells_are_fit_for_folders_and_differ(base):
    assert label({"plan": "late:ISS/a+b, feed~:a>b"}) == "late-ISS-a+b-feed~-a-b"
    assert label({"training.weights": {"a": 0.5, "b": 1}}) == "weights=a-0.5+b-1"
    assert label({"tasks.a.loss": "mse", "tasks.b.loss": "bce"}) == "a.loss=mse_b.loss=bce"
    long = [label({"plan": f"{'split@3, ' * 20}{end}"}) for end in ("a", "b")]
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
    one, two = asked.resolved().orders()
    assert (one.cell, two.cell) == ("sentiment", "similarity+questions")
    assert list(two.recipe.tasks) == ["similarity", "questions"]
    assert two.recipe.training.weights == {"questions": 3}
    assert {task.dropout for task in two.recipe.tasks.values()} == {0.3}


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
    assert len(small.orders()) == 9
    assert {o.recipe.training.steps for o in small.orders()} == {2}
    assert {o.recipe.training.lr for o in small.orders()} == {1e-2}
    assert [(o.cell, o.recipe.plan) for o in large.orders()] == [
        ("separate", "separate"),
        ("mine", "late:S"),
    ]
    assert {o.recipe.training.lr for o in large.orders()} == {1e-3}
    assert large.orders()[1].recipe.training.batch == 4


def test_what_is_resolved_is_complete_and_reads_back_the_same(base, tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    file = written(tmp_path, recipe="base.yaml", vary={"plan": ["full"]}, asks="Is ${HOME} ours?")
    resolved = Survey.read(file).resolved(threads=7)
    (tmp_path / "resolved.yaml").write_text(resolved.dump(), encoding="utf-8")
    again = Survey.read(tmp_path / "resolved.yaml")
    assert again == resolved
    assert again.orders() == resolved.orders()
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
        ({"vary": {"plan": ["splt@1"]}}, "plan 'splt@1': .*'split@1'"),
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
    file = written(tmp_path, **{"recipe": base, **keys})
    with pytest.raises(UserError, match=sentence) as refused:
        conduct(file, out=tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out" / "runs").exists()


def test_what_is_asked_on_the_command_line_is_refused_in_a_sentence(base, tmp_path, quick):
    file = written(tmp_path, recipe=base, vary={"plan": ["full", "separate"]},
                   budgets={"small": {}, "full": {}})  # fmt: skip
    out = tmp_path / "out"
    with pytest.raises(
        UserError, match="no budget 'smal'; there is small, full; did you mean 'small'"
    ):
        conduct(file, budget="smal")
    with pytest.raises(
        UserError, match="no cell 'ful'; there is full, separate; did you mean 'full'"
    ):
        conduct(file, out=out, only=["ful"])
    with pytest.raises(UserError, match="--keep 'model': expected scores, models, all"):
        conduct(file, out=out, keep="model")
    with pytest.raises(UserError, match=r"not a survey's directory \(no survey.yaml\)"):
        conduct(tmp_path)
    conduct(file, out=out, only=["full"])
    with pytest.raises(UserError, match="goes on as it was begun; leave -o and --budget out"):
        conduct(out, budget="full")
    with (
        locked(out / ".lock"),
        pytest.raises(UserError, match="another process is writing this survey"),
    ):
        conduct(out)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "none.yaml").write_text("# nothing\n")
    with pytest.raises(UserError, match="is empty; expected at least `recipe`"):
        conduct(tmp_path / "none.yaml")


# --- runs as processes ---------------------------------------------------------------------------


def test_runs_are_done_once_and_a_failing_one_is_recorded(base, tmp_path, quick, capsys):
    file = written(tmp_path, recipe=base, vary={"training.lr": [1e-3, 1e-4]},
                   cells={"bad": {"training.lr": 666}, "dead": {"training.lr": 13}},
                   seeds=2)  # fmt: skip
    out = tmp_path / "out"
    result = conduct(file, out=out, workers=2)
    assert (result.done, result.failed, result.total, result.stopped) == (4, 4, 8, False)
    said = (out / "failures" / "bad-s0.txt").read_text()
    assert said.startswith("the loss is not a finite number at step 2\n")
    assert (
        (out / "failures" / "dead-s1.txt")
        .read_text()
        .startswith("its process was ended by SIGKILL")
    )
    shown = capsys.readouterr()
    assert "bad-s0: failed" in shown.err
    assert "lr=0.001-s0: done" in shown.err
    assert "lr=0.001" in shown.out
    assert "bough compare" in str(result)
    assert "--retry" in str(result)

    before = starts(out)
    assert before == dict.fromkeys(before, 1)
    again = conduct(out, workers=2)
    assert (again.done, again.failed) == (4, 4)
    assert starts(out) == before, "neither the finished nor the failed ones are run again"
    conduct(out, retry=True)
    assert {n for n, times in starts(out).items() if times == 2} == {
        f"{cell}-s{seed}" for cell in ("bad", "dead") for seed in (0, 1)
    }


def test_a_failure_is_told_by_the_words_of_its_own_attempt(base, tmp_path, monkeypatch):
    file = written(tmp_path, recipe=base, vary={"plan": ["full"]})
    out = tmp_path / "out"
    (out / "logs").mkdir(parents=True)
    (out / "logs" / "full-s0.txt").write_text("bough: stopped after step 12\n")

    def reason(code: str) -> list[str]:
        monkeypatch.setattr(launcher, "COMMAND", (sys.executable, "-c", code))
        assert conduct(file, out=out, retry=True).failed == 1
        return (out / "failures" / "full-s0.txt").read_text().splitlines()

    fault = "import sys; print('bough: a word', file=sys.stderr); raise ValueError('a\\nb')"
    assert reason(fault)[0] == "ValueError: a"
    silent = reason("raise SystemExit(3)")
    assert silent[0] == "its process ended with code 3"
    assert not any("stopped" in line or "ValueError" in line for line in silent)


def test_finished_runs_keep_what_is_asked_for(base, tmp_path, quick):
    file = written(tmp_path, recipe=base, vary={"plan": ["full"]})
    for keep, checkpoint, weights in (
        ("all", True, True),
        ("models", False, True),
        ("scores", False, False),
    ):
        conduct(file, out=tmp_path / keep, keep=keep)
        run = Run.open(tmp_path / keep / "runs" / "full-s0")
        assert run.checkpoint.is_file() == checkpoint
        assert (run.model / "model.safetensors").is_file() == weights
    conduct(tmp_path / "all", keep="models")
    assert not Run.open(tmp_path / "all" / "runs" / "full-s0").checkpoint.exists()


def test_a_survey_may_grow_but_not_change(base, tmp_path, quick):
    out = tmp_path / "out"
    conduct(written(tmp_path, recipe=base, vary={"plan": ["full"]}), out=out)
    more = {"recipe": base, "vary": {"plan": ["full", "separate"]}, "seeds": 2}
    assert conduct(written(tmp_path, **more), out=out).done == 4
    assert set(starts(out).values()) == {1}
    with pytest.raises(UserError, match=r"training.lr of full is 0.001 there and 0.5 here"):
        conduct(written(tmp_path, **more, fixed={"training.lr": 0.5}), out=out)
    with pytest.raises(UserError, match="it has the seed 1, which this has not"):
        conduct(written(tmp_path, **{**more, "seeds": 1}), out=out)
    with pytest.raises(
        UserError, match=r"it has a cell 'separate', which this has not.*another place"
    ):
        conduct(written(tmp_path, **{**more, "vary": {"plan": ["full"]}}), out=out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_survey_that_is_told_to_stop_goes_on_where_it_was(base, tmp_path, quick, number):
    file = written(tmp_path, recipe=base, vary={"training.lr": [1e-3, 1e-6]})
    out = tmp_path / "out"
    slow = out / "runs" / "lr=1e-06-s0"

    def stop() -> None:
        while not (slow / "checkpoint" / "state.pt").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=stop)
    thread.start()
    result = conduct(file, out=out)
    thread.join()
    assert result.stopped
    assert (result.done, result.failed) == (1, 0)
    assert not Run.open(slow).finished
    done = sum("dev" in entry for entry in Run.open(slow).metrics())
    assert 0 < done < 4
    assert conduct(out).done == 2
    steps = [entry["step"] for entry in Run.open(slow).metrics() if "dev" in entry]
    assert steps == [1, 2, 3, 4]
    assert starts(out)["lr=0.001-s0"] == 1


def test_a_run_that_another_process_still_writes_is_waited_for(base, tmp_path, quick):
    file = written(tmp_path, recipe=base, vary={"plan": ["full", "separate"]})
    run = tmp_path / "out" / "runs" / "full-s0"
    lock = ExitStack()
    lock.enter_context(locked(run / ".lock"))
    timer = threading.Timer(1.0, lock.close)
    timer.start()
    began = time.monotonic()
    assert conduct(file, out=tmp_path / "out").done == 2
    assert time.monotonic() - began >= 0.9


def test_a_run_that_is_called_hopeless_is_stopped_and_its_checkpoint_dropped(base, tmp_path, quick):
    class Strict(Listed):
        def hopeless(self, order: RunSpec) -> bool:
            return any("dev" in entry for entry in folder.run(order.name).metrics())

    asked = {"recipe": base, "vary": {"training.lr": [1e-6]}}
    folder = Folder(tmp_path)
    board = Board("mine", 1, 1, folder.run)
    assert Launcher(folder, 1, board).run(Strict(Survey.read(asked).resolved().orders(), folder))
    assert board.counts == {"done": 0, "failed": 0, "pruned": 1, "stopped": 0}
    run = Run.open(tmp_path / "runs" / "lr=1e-06-s0")
    assert not run.finished
    assert not run.checkpoint.exists()
    assert not (tmp_path / "failures").exists()


def test_the_live_table_tells_how_far_it_is(base, tmp_path, quick):
    file = written(tmp_path, recipe=base, vary={"plan": ["full", "separate"]})
    conduct(file, out=tmp_path / "out")
    folder = Folder(tmp_path / "out")
    found = folder.survey
    assert found is not None
    screen = Console(file=io.StringIO(), width=120, force_terminal=True)
    board = LiveBoard("mine", 4, 1, folder.run, screen)
    for order in found.orders():
        board.known(order, "done")
    board.seconds.append(60)
    board.show(found.orders())
    board.close()
    paper = Console(width=120)
    with paper.capture() as text:
        paper.print(board.live.get_renderable())
    assert "2 done of 4; 2 running; about 2 min left" in text.get()
    assert "step 4 of 12" in text.get()
    assert "separate" in text.get()
    assert [duration(s) for s in (5, 100, 7500)] == ["5 s", "2 min", "2 h 5 min"]


def test_runs_without_dev_scores_have_their_place_in_the_table():
    board = Board("mine", 1, 1, lambda name: Run(Path("nowhere")))
    assert board.table().row_count == 0


def test_cells_may_judge_a_task_differently_or_not_at_all(tmp_path, capsys):
    def scores(**own: float) -> dict[str, Any]:
        (metric,) = own
        return {"tasks": {"sst": {"metric": metric, **own}}, "raw": 0.5, "normalised": 0.5}

    given = {"a": {"dev": scores(accuracy=0.25)}, "b": {"dev": scores(pearson=0.75)},
             "c": {"dev": {"tasks": {"sst": {"metric": "pearson"}}}}, "d": {}}  # fmt: skip
    board = Board("mine", 5, 1, lambda name: Run(tmp_path / name))
    for cell in (*given, "gone"):
        order = RunSpec(cell, 0, Recipe.model_construct())
        if cell in given:
            (tmp_path / order.name).mkdir()
            (tmp_path / order.name / "scores.json").write_text(json.dumps(given[cell]))
        board.ended(order, "done")
    said = capsys.readouterr().err
    assert "a-s0: done (1 of 5)  sst 0.250  raw 0.500" in said
    assert "gone-s0: done (5 of 5)" in said
    paper = Console(width=120)
    with paper.capture() as text:
        paper.print(board.table())
    lines = [line.split() for line in text.get().splitlines()]
    assert ["cell", "runs", "accuracy", "pearson", "mean", "mean"] in lines
    assert ["a", "1", "0.250", "0.500", "0.500"] in lines
    assert ["b", "1", "0.750", "0.500", "0.500"] in lines
    assert ["c", "1"] in lines


def test_a_cell_may_be_named_as_a_comparison_names_it(base, tmp_path, quick):
    keys = {"training.lr": [1e-3, 1e-4], "plan": ["full", "late:I, frozen"]}
    file = written(tmp_path, recipe=base, vary=keys, baseline="lr=0.0001_late-I-frozen", seeds=[4])
    out = tmp_path / "out"
    conduct(file, out=out, only=["late:I, frozen, lr=0.0001", "lr=0.001_full"])
    assert set(starts(out)) == {"lr=0.0001_late-I-frozen-s4", "lr=0.001_full-s4"}
    said = str(conduct(file, out=out))
    assert said.count(" --baseline 'late:I, frozen, lr=0.0001'") == 2
    runs = find_runs([out])
    labels = [v.label for v in group(runs, [Recipe.read(run.recipe_file) for run in runs])[0]]
    assert "late:I, frozen, lr=0.0001" in labels, "which is how a comparison calls it"
    assert named("b=1, a", ["a_b=1", "b=1_a"]) is None, "two could be meant"
    assert named("full, tasks=x+y", ["full_x+y", "full_x"]) == "full_x+y"


# --- searches ------------------------------------------------------------------------------------


SPACE = {"training.lr": {"low": 1e-5, "high": 1e-1, "log": True}, "plan": ["full", "split@1"]}


def test_a_search_with_two_aims_goes_on_and_ends_with_its_front(base, tmp_path, quick, capsys):
    search = {"space": SPACE, "trials": 3, "objectives": ["raw", "bytes_to_serve"], "prune": False}
    out = tmp_path / "out"
    first = conduct(written(tmp_path, recipe=base, search=search, seeds=2), out=out)
    assert (first.done, first.total) == (6, 6)
    assert (out / "search.db").is_file()
    more = {**search, "trials": 5}
    second = conduct(written(tmp_path, recipe=base, search=more, seeds=2), out=out, workers=2)
    assert (second.done, second.total) == (10, 10)
    assert set(starts(out).values()) == {1}
    assert len({r["training"]["lr"] for r in recipes(out)}) == 5
    shown = capsys.readouterr().out
    assert "No other trial is better in every aim:" in shown
    assert "bytes_to_serve 100" in shown
    other = {**more, "objectives": ["raw"]}
    with pytest.raises(UserError, match=r"holds another survey \(the searches differ"):
        conduct(written(tmp_path, recipe=base, search=other, seeds=2), out=out)


def recipes(out: Path) -> list[dict[str, Any]]:
    found = sorted((out / "runs").glob("*/recipe.yaml"))
    return [yaml.safe_load(file.read_text()) for file in found]


def test_a_search_that_was_stopped_goes_on_with_the_trial_at_hand(base, tmp_path, quick):
    space = {"training.lr": {"low": 1e-7, "high": 1e-6, "log": True}}
    file = written(tmp_path, recipe=base, search={"space": space, "trials": 2})
    out = tmp_path / "out"
    run = out / "runs" / "t0-s0"

    def stop() -> None:
        while not (run / "checkpoint" / "state.pt").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    assert conduct(file, out=out).stopped
    assert conduct(out, workers=2).done == 2
    assert starts(out) == {"t0-s0": 2, "t1-s0": 1}


def test_what_was_tried_is_not_run_again_and_a_trial_may_fail(base, tmp_path, quick):
    search = {"space": {"training.lr": [1e-3, 666]}, "trials": 8, "sampler": "random"}
    out = tmp_path / "out"
    result = conduct(written(tmp_path, recipe=base, search=search), out=out)
    tried = [r["training"]["lr"] for r in recipes(out)]
    assert tried.count(1e-3) == 1
    assert result.done == 1
    assert result.failed == tried.count(666) >= 1


def test_a_failed_trial_is_tried_again_and_counts_once(base, tmp_path, seed_1_fails, capsys):
    search = {"space": SPACE, "trials": 2, "prune": False}
    out = tmp_path / "out"
    first = conduct(written(tmp_path, recipe=base, search=search, seeds=3), out=out)
    counted = (2, 2, 2, 6)  # the seeds 0 and 1, and the seed 2, which is not begun
    assert (first.done, first.failed, first.pruned, first.total) == counted
    assert "t1-s2: pruned (6 of 6)" in capsys.readouterr().err
    again = conduct(out)
    assert (again.done, again.failed, again.pruned, again.total) == counted
    (tmp_path / MENDED).touch()
    more = written(tmp_path, recipe=base, search={**search, "trials": 3}, seeds=3)
    last = conduct(more, out=out, retry=True)
    assert (last.done, last.failed, last.pruned, last.total) == (9, 0, 0, 9)
    names = [f"t{trial}-s{seed}" for trial in (0, 1, 4) for seed in (0, 1, 2)]
    assert starts(out) == dict.fromkeys(names, 1), "what was done is not done again"
    assert not any((out / "failures").iterdir())
    assert "Best trial:\n  t" in capsys.readouterr().out


def test_other_seeds_of_a_failed_trial_are_stopped(base, tmp_path, seed_1_fails):
    slow = {"space": {"training.lr": {"low": 1e-7, "high": 1e-6}}, "trials": 1, "prune": False}
    out = tmp_path / "out"
    result = conduct(written(tmp_path, recipe=base, search=slow, seeds=2), out=out, workers=2)
    assert (result.done, result.failed, result.pruned, result.total) == (0, 1, 1, 2)
    assert not (out / "runs" / "t0-s0" / "checkpoint").exists()


def test_hopeless_runs_are_stopped(base, tmp_path, quick, monkeypatch):
    space = {"training.lr": {"low": 1e-3, "high": 2e-3}}
    out = tmp_path / "out"
    file = written(tmp_path, recipe=base, search={"space": space, "trials": 5})
    conduct(file, out=out)
    asked = {"t9": {"training.lr": 1e-6}}
    (worse,) = Survey.read({"recipe": base, "cells": asked}).resolved().orders()
    settled = Folder(out).survey
    assert settled is not None
    trials = Trials(settled, Folder(out))
    process = subprocess.Popen(
        [
            sys.executable,
            PRETENDER,
            "train",
            written_recipe(tmp_path, worse.recipe),
            "-o",
            out / "runs" / "t9-s0",
        ]
    )
    try:
        until = time.monotonic() + 20
        while not trials.hopeless(worse):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait()
    assert not trials.hopeless(worse), "asked again only when it was judged again"
    done = [Run(path) for path in (out / "runs").iterdir() if Run(path).finished]
    best = max(done, key=lambda run: float(run.scores["dev"]["raw"]))
    assert not trials.hopeless(replace(worse, cell=best.name.removesuffix("-s0")))


def written_recipe(folder: Path, recipe: Recipe) -> Path:
    file = folder / "recipe.yaml"
    file.write_text(recipe.dump(), encoding="utf-8")
    return file


# --- equal budgets -------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", ["each", "annealed", "method1", "in-turn"])
def test_a_budget_of_tokens_is_kept_whatever_the_sampling(base, tmp_path, sampling):
    asked = [f"training.sampling={sampling}", "training.tokens=6000", "training.steps=null"]
    run = train(base, tmp_path / "run", [*asked, "training.batch=4"])
    assert run.cost["tokens"] == pytest.approx(6000, rel=0.15)
    again = train(base, tmp_path / "again", [*asked, "training.batch=4"])
    assert again.scores == run.scores


def test_a_budget_of_minutes_is_kept(base, tmp_path, monkeypatch):
    """By a clock of its own, on which every step takes 50 milliseconds."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * 0.05)
    asked = ["training.minutes=0.02", "training.steps=null", "training.evaluate_rows=4"]
    run = train(base, tmp_path / "run", asked)
    assert run.cost["training_seconds"] == pytest.approx(1.2, abs=0.051)
    rates = [entry["lr"] for entry in run.metrics() if "lr" in entry]
    assert rates[-1] < 0.2 * max(rates), "the learning rate has come down by then"


def test_a_run_has_one_length(base):
    with pytest.raises(UserError, match="has its length by `steps` already; keep one of the two"):
        Recipe.read(base, ["training.minutes=3"])


def test_a_limit_takes_the_same_rows_always_and_a_higher_one_adds_to_them(base):
    def dev(limit: str) -> list[str]:
        recipe = Recipe.read(base, [f"tasks.sentiment.limit.dev={limit}"])
        data = Data.gather(recipe)
        notes = [note for note in data.notes() if "limit.dev" in note]
        assert len(notes) == (limit == "5" or limit == "9")
        return data.rows["sentiment"]["dev"].ids

    five, nine, every = dev("5"), dev("9"), dev("null")
    assert len(five) == 5
    assert five == dev("5")
    assert set(five) < set(nine) < set(every) == set(dev("1000"))
    assert nine == [row for row in every if row in set(nine)], "in the file's order"


# --- with real training --------------------------------------------------------------------------


def test_a_survey_killed_three_times_ends_with_every_run_done_once(base, tmp_path):
    """Twelve runs and a failing one; SIGKILL takes the survey at random moments."""
    base["training"] |= {"save_every": 0, "evaluate_every": 5, "evaluate_rows": 4}
    base["tasks"] = {"sentiment": base["tasks"]["sentiment"]}
    keys = {"vary": {"plan": ["full", "late:I"], "training.lr": [1e-3, 1e-4]}, "seeds": 3}
    file = written(tmp_path, recipe=base, **keys, cells={"bad": {"encoder": "/nowhere/at/all"}})
    out = tmp_path / "out"
    names = [o.name for o in Survey.read(file).resolved().orders()]
    chance = random.Random(7)
    written_at: dict[str, int] = {}

    def begin() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "bough", "survey", file, "-o", out, "--workers", "2"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def finished() -> dict[str, int]:
        found = [out / "runs" / name / "scores.json" for name in names]
        return {f.parent.name: f.stat().st_mtime_ns for f in found if f.exists()}

    for least in (0, 3, 7):
        process = begin()
        until = time.monotonic() + 300
        while not (len(finished()) >= least and any((out / "runs").glob("*/metrics.jsonl"))):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 3))
        children = psutil.Process(process.pid).children()
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive, "no run goes on without its survey"
        for name, when in finished().items():
            assert written_at.setdefault(name, when) == when, "a finished run is not written again"
    process = begin()
    assert process.wait(timeout=600) == 1, "the failing cell shows in the exit code"
    good = [name for name in names if not name.startswith("bad")]
    assert set(finished()) == set(good)
    assert len(good) == 12
    for name, when in finished().items():
        assert written_at.setdefault(name, when) == when
    assert {f.stem for f in (out / "failures").iterdir()} == {"bad-s0", "bad-s1", "bad-s2"}
    for name in good:
        lines = list(Run.open(out / "runs" / name).metrics())
        assert [e["step"] for e in lines if "loss" in e] == list(range(1, 13)), name
        assert [e["step"] for e in lines if "dev" in e] == [5, 10, 12], name
    name = chance.choice(good)
    recipe = Recipe.read(out / "runs" / name / "recipe.yaml")
    alone = train(recipe, tmp_path / "alone").scores
    assert json.dumps(Run.open(out / "runs" / name).scores) == json.dumps(alone)
