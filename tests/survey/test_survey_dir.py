"""What was begun in a directory goes on there, and nothing else does."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.survey.survey import conduct
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
