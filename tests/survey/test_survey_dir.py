"""What was begun in a directory goes on there, and nothing else does."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.runs.lock import locked
from bough.survey.spec import Survey
from bough.survey.survey import conduct
from bough.survey.survey_dir import STEPS, SurveyDir
from tests.survey import files


def test_a_survey_may_grow_but_not_change(base, tmp_path, quick):
    out = tmp_path / "out"
    conduct(files.written(tmp_path, recipe=base, vary={"plan": ["full"]}), out=out)
    more = {"recipe": base, "vary": {"plan": ["full", "separate"]}, "seeds": 2}
    assert conduct(files.written(tmp_path, **more), out=out).done == 4
    assert set(files.starts(out).values()) == {1}
    with pytest.raises(UserError, match=r"training.lr of full is 0.001 there and 0.5 here"):
        conduct(files.written(tmp_path, **more, fixed={"training.lr": 0.5}), out=out)
    with pytest.raises(UserError, match="it has the seed 1, which this has not"):
        conduct(files.written(tmp_path, **{**more, "seeds": 1}), out=out)
    with pytest.raises(
        UserError, match=r"it has a cell 'separate', which this has not.*another place"
    ):
        conduct(files.written(tmp_path, **{**more, "vary": {"plan": ["full"]}}), out=out)


def tried(folder, **keys) -> SurveyDir:
    """The directory of a survey whose only run came as far as its recipe, and failed."""
    place = SurveyDir(folder)
    survey = Survey.read(keys).resolved()
    place.settle(survey)
    (spec,) = survey.run_specs()
    place.add(spec)
    run = place.run(spec.name)
    run.folder.mkdir()
    run.recipe_file.write_text(spec.recipe.dump())
    for file in (place.failure(spec.name), place.log(spec.name)):
        file.parent.mkdir(exist_ok=True)
        file.write_text("no")
    return place


def test_where_no_run_took_a_step_a_survey_may_change(base, tmp_path, quick):
    asked = {"recipe": base, "vary": {"plan": ["full"]}}
    tried(tmp_path / "out", **asked)
    base["training"]["lr"] = 0.01
    assert conduct(files.written(tmp_path, **asked), out=tmp_path / "out").done == 1
    (recipe,) = files.recipes(tmp_path / "out")
    assert recipe["training"]["lr"] == 0.01
    assert not [*(tmp_path / "out" / "failures").iterdir()]


@pytest.mark.parametrize("mark", [*STEPS, ".lock"])
def test_one_step_holds_a_survey_to_what_it_was(base, tmp_path, mark):
    asked = {"recipe": base, "vary": {"plan": ["full"]}}
    place = tried(tmp_path / "out", **asked)
    file = place.run("full-s0").folder / mark
    file.parent.mkdir(exist_ok=True)
    file.touch()
    base["training"]["lr"] = 0.01
    other = Survey.read(asked).resolved()
    if mark != ".lock":
        with pytest.raises(UserError, match="holds another survey"):
            place.settle(other)
        return
    with locked(file), pytest.raises(UserError, match="holds another survey"):
        place.settle(other)
    place.settle(other)
    assert not place.recipe("full-s0").exists()
