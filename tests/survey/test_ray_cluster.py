"""A survey on a Ray cluster of this machine whose workers are killed: every run ends well."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bough.errors import UserError
from bough.survey.survey import conduct
from tests.survey import files

ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


def killing(out: Path, names: list[str]) -> threading.Thread:
    """Kill, with SIGKILL, the Ray worker that does each of these runs, once it has a checkpoint."""

    def kill() -> None:
        for name in names:
            while not (out / "runs" / name / "checkpoint" / "state.pt").exists():
                time.sleep(0.02)
            for process in psutil.process_iter(["cmdline"]):
                if (process.info["cmdline"] or [""])[0].startswith(f"ray::{name}"):
                    os.kill(process.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@ray
@pytest.mark.filterwarnings("default")  # Ray's own
def test_workers_that_are_killed(base: Any, tmp_path: Path, pretended: None) -> None:
    asked = {"vary": {"training.lr": [1e-3, 1e-4, 1e-6]}, "cells": {"bad": {"training.lr": 666}}}
    file = files.written(tmp_path, recipe=base, **asked, seeds=2)
    out, here = tmp_path / "out", tmp_path / "here"
    thread = killing(out, ["lr=1e-06-s0", "lr=1e-06-s1"])
    result = conduct(file, out=out, ray="local", workers=2)
    thread.join()
    local = conduct(file, out=here, workers=2)
    assert (result.done, result.failed) == (local.done, local.failed) == (6, 2)
    for name, starts in files.starts(out).items():
        # The process that trains may outlive the worker that started it: then it is waited for.
        assert starts in ((1, 2) if name.startswith("lr=1e-06") else (1,)), name
    for name in sorted(files.starts(here)):
        for part in (f"runs/{name}/scores.json", f"failures/{name}.txt"):
            assert (out / part).exists() == (here / part).exists(), part
            if part.endswith("json") and (here / part).exists():
                assert (out / part).read_bytes() == (here / part).read_bytes()


@ray
@pytest.mark.filterwarnings("default")
def test_no_cluster_there(base: Any, tmp_path: Path) -> None:
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    with pytest.raises(UserError, match=r"--ray 127\.0\.0\.1:1: no cluster there"):
        conduct(file, out=tmp_path / "out", ray="127.0.0.1:1")


def test_without_ray(base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.written(tmp_path, recipe=base, vary={"plan": ["full"]})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--ray needs its package: pip install"):
        conduct(file, out=tmp_path / "out", ray="local")
