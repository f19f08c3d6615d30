"""Whole surveys: what is asked on the command line, and real training that is killed."""

from __future__ import annotations

import json
import random
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.runs.lock import locked
from bough.runs.run_dir import Run
from bough.survey import launcher
from bough.survey.spec import Survey
from bough.survey.survey import conduct, prepare
from bough.training.train import train
from tests.command import bough
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


def test_wrong_files_and_columns_are_found_before_anything_is_written(
    base, tmp_path, quick, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    right = base["tasks"]["sentiment"]
    asked = {"recipe": "r.yaml", "vary": {"plan": ["full", "split@1"]}, "seeds": 2}

    def told(survey: dict[str, Any], **task: Any) -> str:
        base["tasks"]["sentiment"] = {**right, **task}
        lines = yaml.safe_dump(base, sort_keys=False, default_flow_style=False)
        Path("r.yaml").write_text(lines, encoding="utf-8")
        file = files.written(tmp_path, **survey).name
        assert bough("survey", file, "--list") == 2
        said = str(capsys.readouterr().err)
        assert bough("survey", file, "-o", "out") == 2
        assert capsys.readouterr().err == said, "the same when it starts"
        assert not Path("out").exists()
        assert said.count("\n") == 1
        return said

    said = told(asked, dev="sentiment-dve.csv")
    assert re.search(r"bough: r.yaml line \d+: task 'sentiment': .*did you mean", said)
    line = int(re.findall(r"line (\d+)", said)[0])
    assert "sentiment-dve.csv" in Path("r.yaml").read_text().splitlines()[line - 1]
    assert re.search(r"r.yaml line \d+: .*has no column 'txt'", told(asked, text="txt"))
    # What the survey sets, it is asked about.
    bad = {"cells": {"bad": {"tasks.sentiment.label": "lable"}}}
    assert re.search(r"asked.yaml line \d+: cell 'bad': .* no column 'lable'", told(asked | bad))
    fixed = {"fixed": {"tasks.*.dev": "nowhere.csv"}}
    assert re.search(r"asked.yaml line \d+: fixed: .*nowhere.csv does not", told(asked | fixed))
    within = {**base, "tasks": {"sentiment": {**right, "dev": "nowhere.csv"}}}
    whole = told(asked | {"recipe": within})
    assert re.search(r"asked.yaml line \d+: task 'sentiment': .*nowhere.csv does not", whole)


def test_files_of_runs_that_are_done_or_not_asked_for_may_be_gone(base, tmp_path, quick):
    cells = {"good": {}, "bad": {"tasks.sentiment.dev": "nowhere.csv"}}
    file = files.written(tmp_path, recipe=base, cells=cells)
    out = tmp_path / "out"
    assert conduct(file, out=out, only=["good"]).done == 1
    with pytest.raises(UserError, match=r"cell 'bad': .*nowhere.csv does not exist"):
        conduct(file, out=out)
    cells["good"] = {"tasks.sentiment.dev": "gone.csv"}
    whole = yaml.safe_load((out / "survey.yaml").read_text())
    (out / "survey.yaml").write_text(yaml.safe_dump(whole | {"cells": {"good": cells["good"]}}))
    assert conduct(out).done == 1


def test_a_search_over_files_that_are_not_there_is_refused(base, tmp_path, quick):
    space = {"tasks.sentiment.dev": ["sentiment-dev.csv", "nowhere.csv"]}
    file = files.written(tmp_path, recipe=base, search={"space": space})
    with pytest.raises(UserError, match=r"line \d+: search.space: .*nowhere.csv does not exist"):
        conduct(file, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_advised_after_failures_can_be_done(base, tmp_path, monkeypatch, capsys):
    """First no run takes a step; then some do, and stay what they are."""
    monkeypatch.chdir(tmp_path)

    def command(last: str, *, failing: bool, lr: float = 1e-3) -> list[str]:
        monkeypatch.setattr(launcher, "COMMAND", (sys.executable, str(files.PRETENDER)))
        if failing:
            code = "raise SystemExit('bough: out of luck')"
            monkeypatch.setattr(launcher, "COMMAND", (sys.executable, "-c", code))
        base["training"]["lr"] = lr
        keys = {"recipe": base, "cells": {"one": {}, "two": {"training.lr": 666}}}
        files.written(tmp_path, **keys if not failing else {**keys, "cells": {"one": {}}})
        assert bough(*shlex.split(last)[1:]) == 1
        said = capsys.readouterr().err
        retry, mended = re.findall(r"^  .*: (bough survey .*)$", said, re.MULTILINE)
        assert shlex.split(retry)[-1] == "--retry"
        return [retry, mended]

    retry, mended = command("bough survey asked.yaml", failing=True)
    assert (retry, mended) == ("bough survey runs/asked --retry", "bough survey asked.yaml")
    assert command(retry, failing=True)[1] == "bough survey FILE -o runs/asked"
    retry, mended = command(mended, failing=False, lr=1e-4)
    assert files.recipes(tmp_path / "runs" / "asked")[0]["training"]["lr"] == 1e-4
    assert mended == "bough survey asked.yaml -o runs/asked-2"
    command(mended, failing=False, lr=1e-5)
    assert command(retry, failing=False)[1] == "bough survey FILE -o runs/asked-3"


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
