"""Cells go by the names that a survey's file gives them, else by names fit for folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.comparison.cell_names import SurveyCells, cell_name, find_cell
from bough.comparison.compare import compare
from bough.comparison.finding import find_runs
from bough.errors import UserError
from bough.survey.spec import Survey
from bough.survey.survey_dir import SurveyDir
from tests import simulated

APART = {"apart": "separate", "together": "full"}


def test_names_are_fit_for_folders_and_differ() -> None:
    assert cell_name({"plan": "late:ISS/a+b, feed~:a>b"}) == "late-ISS-a+b-feed~-a-b"
    assert cell_name({"plan": "feed~0.1:a>b"}) == "feed~0.1-a-b"
    assert cell_name({"training.weights": {"a": 0.5, "b": 1}}) == "weights=a-0.5+b-1"
    assert cell_name({"tasks.a.loss": "mse", "tasks.b.loss": "bce"}) == "a.loss=mse_b.loss=bce"
    long = [cell_name({"plan": f"{'split@3, ' * 20}{end}"}) for end in ("a", "b")]
    assert len({*long}) == 2
    assert max(map(len, long)) <= 80


def test_a_cell_is_found_by_its_label() -> None:
    assert find_cell("b=1, a", ["a_b=1", "b=1_a"]) is None, "two could be meant"
    assert find_cell("full, tasks=x+y", ["full_x+y", "full_x"]) == "full_x+y"


def test_a_comparison_of_a_survey_speaks_its_language(tmp_path: Path) -> None:
    folder = simulated.surveyed(tmp_path / "survey", APART)
    found = compare(folder)
    assert {v.label for v in found.variants} == {"apart", "together"}
    assert found.baseline.label == "apart", "as the survey's file says"
    assert compare(folder, baseline="together").baseline.label == "together"
    assert compare(folder, baseline="full").baseline.label == "together", "by its plan"


def test_cells_of_a_grid_are_told_apart_from_each_other(tmp_path: Path) -> None:
    """However a named cell differs from them: by its rate and its dropout, here."""
    source = simulated.data(tmp_path / "data")
    base = simulated.recipe(source, "full", 0).model_dump(mode="json")
    cells = {"other": {"plan": "full", "training.lr": 1e-3, "training.dropout": 0.2}}
    survey = Survey.read(
        {"recipe": base, "seeds": 1, "vary": {"plan": ["full", "separate"]}, "cells": cells}
    ).resolved()
    SurveyDir(tmp_path / "survey").settle(survey)
    for spec in survey.run_specs():
        simulated.run(SurveyDir(tmp_path / "survey").run(spec.name).folder, spec.recipe, {})
    labels = {v.label for v in compare(tmp_path / "survey").variants}
    assert labels == {"full", "separate", "other"}


def test_runs_of_several_surveys_are_told_apart_by_what_they_are(tmp_path: Path) -> None:
    one = simulated.surveyed(tmp_path / "one", APART)
    other = simulated.surveyed(tmp_path / "other", {"apart": "full"})
    assert SurveyCells.of(find_runs([one, other])) is None
    assert {v.label for v in compare([one, other]).variants} == {"separate", "full"}


@pytest.mark.parametrize("text", ["", "- a", "cells: 3", "cells: {full: split}"])
def test_a_damaged_survey_is_said_in_a_sentence(text: str, tmp_path: Path) -> None:
    folder = simulated.surveyed(tmp_path / "survey", APART)
    (folder / "survey.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"survey\.yaml: not the file of a survey"):
        compare(folder)


def test_runs_outside_of_surveys_have_no_cells(tmp_path: Path) -> None:
    folder = simulated.surveyed(tmp_path / "survey", APART)
    (folder / "survey.yaml").unlink()
    assert SurveyCells.of(find_runs([folder])) is None
    assert {v.label for v in compare(folder).variants} == {"separate", "full"}
