"""The public names: lazily loaded, documented with parameters, and with examples that run."""

from __future__ import annotations

import doctest
import inspect
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import bough
from bough.runs.console import Moment, Silent
from bough.training.loop import Stopped
from tests import folders


class _StopAt(Silent):
    def __init__(self, last: int):
        self.last = last

    def step(self, moment: Moment) -> None:
        if moment.step == self.last:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="session")
def examples_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples find: a recipe, two finished runs and a stopped one."""
    folder = tmp_path_factory.mktemp("examples")
    recipe = folders.small(tiny_folder, steps=3, evaluate_rows=8)
    (folder / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    for name, plan in (("first", "full"), ("second", "split@1")):
        bough.train(folder / "recipe.yaml", folder / "runs" / name, [f"plan={plan}"])
    with pytest.raises(Stopped):
        bough.train(folder / "recipe.yaml", folder / "runs" / "stopped", display=_StopAt(2))
    return folder


@pytest.mark.parametrize("name", bough.__all__)
def test_the_example_runs(
    name: str, examples_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(examples_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    text = inspect.cleandoc(getattr(bough, name).__doc__ or "")
    assert "Example:\n" in text
    example = doctest.DocTestParser().get_doctest(text, {"bough": bough}, name, None, 0)
    assert example.examples
    shown: list[str] = []
    doctest.DocTestRunner().run(example, out=shown.append)
    assert not shown, "".join(shown)


@pytest.mark.parametrize("name", bough.__all__)
def test_every_parameter_is_documented(name: str) -> None:
    public = getattr(bough, name)
    if not inspect.isfunction(public):
        return  # a class is opened by a function or a method, which has its parameters
    arguments = (public.__doc__ or "").split("Args:\n")[1]
    for parameter in inspect.signature(public).parameters:
        assert f"    {parameter}: " in arguments


def test_names_are_found_and_others_are_not() -> None:
    assert {"load", "train", "Recipe"} <= set(dir(bough))
    assert {name for name in bough.__all__ if getattr(bough, name)} == set(bough.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = bough.lode
