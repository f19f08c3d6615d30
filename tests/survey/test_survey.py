"""Whole surveys: what is asked on the command line, and real training that is killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time

import psutil
import pytest

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.runs.lock import locked
from bough.runs.run_dir import Run
from bough.survey.spec import Survey
from bough.survey.survey import conduct, prepare
from bough.training.train import train
from tests.survey import files


def test_what_is_asked_on_the_command_line_is_refused_in_a_sentence(base, tmp_path, quick):
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full", "separate"]},
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
    whole = "goes on as it was begun; leave -o, --budget and --threads out"
    with pytest.raises(UserError, match=whole):
        conduct(out, budget="full")
    with pytest.raises(UserError, match=whole):
        conduct(out, threads=2)
    with pytest.raises(UserError, match=r"--threads 2: the runs of .*out have 1"):
        conduct(file, out=out, threads=2)
    with (
        locked(out / ".lock"),
        pytest.raises(UserError, match="another process is writing this survey"),
    ):
        conduct(out)


def test_threads_of_every_run(base, tmp_path):
    del base["threads"]
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    assert prepare(file, tmp_path / "a", None, 1, threads=3)[1].base.threads == 3
    assert prepare(file, tmp_path / "b", None, 10**6)[1].base.threads == 1
    base["threads"] = 2
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    with pytest.raises(UserError, match=r"--threads 3: the runs of .* have 2, by their recipe"):
        prepare(file, tmp_path / "c", None, 1, threads=3)


def test_a_survey_killed_three_times_ends_with_every_run_done_once(base, tmp_path):
    """Twelve runs and a failing one; SIGKILL takes the survey at random moments."""
    base["training"] |= {"save_every": 0, "evaluate_every": 5, "evaluate_rows": 4}
    base["tasks"] = {"sentiment": base["tasks"]["sentiment"]}
    keys = {"vary": {"plan": ["full", "late:I"], "training.lr": [1e-3, 1e-4]}, "seeds": 3}
    file = files.written(
        tmp_path, recipe=base, **keys, cells={"bad": {"encoder": "/nowhere/at/all"}}
    )
    out = tmp_path / "out"
    names = [s.name for s in Survey.read(file).resolved().run_specs()]
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
