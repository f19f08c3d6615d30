"""One run of a survey, done by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.survey.cells import RunSpec
from bough.survey.one_run import do
from bough.survey.survey_dir import SurveyDir
from tests.survey import files


def test_done_failed_and_done_already(base: Any, tmp_path: Path, quick: None) -> None:
    folder = SurveyDir(tmp_path)
    for cell, lr in (("a-s", 1e-3), ("bad", 666.0)):
        recipe = Recipe.read(base, [f"training.lr={lr}"])
        folder.add(RunSpec(cell, 3, recipe))
    assert do(tmp_path, "a-s-s3") == 0
    assert do(tmp_path, "bad-s3") == 1
    assert folder.failure("bad-s3").read_text().startswith("the loss is not a finite number")
    assert do(tmp_path, "a-s-s3") == 0
    assert files.starts(tmp_path) == {"a-s-s3": 1, "bad-s3": 1}
    with pytest.raises(UserError, match="has no run 'c-s0' to do"):
        do(tmp_path, "c-s0")
