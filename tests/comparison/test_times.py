"""Times are compared only where they were taken alike, and where they are the question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.comparison.compare import Comparison, compare
from bough.comparison.verdict import verdict
from bough.reports.page import page
from bough.survey.spec import Survey
from bough.survey.survey_dir import SurveyDir
from tests import simulated
from tests.html_page import Page

LEAD = "times are not compared, for the runs were not computed alike: "


def said(comparison: Comparison) -> list[str]:
    return [note.removeprefix(LEAD) for note in comparison.notes if note.startswith(LEAD)]


def test_times_taken_alike_are_compared(comparison: Comparison) -> None:
    assert said(comparison) == []
    assert all("step_seconds" in v.cost for v in comparison.variants)


@pytest.mark.parametrize(
    ("machine", "settings", "words"),
    [
        ({"threads": 1}, {}, "threads 1 and 2"),
        ({"processor": "Other"}, {}, "processor Other and Simulated <CPU>"),
        ({"gpu": "A100"}, {}, "gpu A100 and none"),
        ({"processes": 2}, {}, "processes 1 and 2"),
        ({}, {"training.cosines_every": 5}, "cosines_every 0 and 5"),
        ({"threads": 1, "gpu": "A100"}, {}, "gpu A100 and none; threads 1 and 2"),
    ],
)  # fmt: skip
def test_others_are_not(
    make: simulated.Make, machine: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    """Whether within a variant or between two of them."""
    odd = make("odd", "full", 1, machine=machine, **settings)
    for runs in ([make("a", "full"), odd], [make("b", "separate"), odd]):
        comparison = compare(runs)
        assert said(comparison) == [words]
        for v in comparison.variants:
            assert {"step_seconds", "training_seconds"}.isdisjoint(v.cost)
            assert v.cost["bytes_to_serve"] > 0
            assert comparison.relative(v, "steady") is None
        assert "step_seconds" not in comparison.fronts
        assert not any("step time" in line for line in verdict(comparison).costs)
        text = Page(page(comparison)).words
        assert "Score against step time" not in text
        assert "median step" not in text
        assert "TM " not in text + str(comparison)
        assert words in text


def test_a_gpu_that_computed_nothing_is_no_matter(make: simulated.Make) -> None:
    runs = [make("a", device="cpu"), make("b", seed=1, device="cpu", machine={"gpu": "A100"})]
    assert said(compare(runs)) == []
    where = {"gpu": "A100", "device": "cuda"}
    assert said(compare([*runs, make("c", seed=2, machine=where)])) == ["device cpu and cuda"]


def test_what_runs_of_before_do_not_say_is_not_held_against_them(make: simulated.Make) -> None:
    runs = [make("a"), make("b", seed=1, machine={"kernels": "bough's", "processor": ""})]
    assert said(compare(runs)) == []


def test_a_survey_may_ask_for_the_times(tmp_path: Path) -> None:
    """What its cells set tells them apart, however little it says of what is learned."""
    source = simulated.data(tmp_path / "data", 40)
    base = simulated.recipe(source, "full", 0)
    survey = Survey.read(
        {"recipe": base.model_dump(mode="json"), "seeds": 2, "vary": {"threads": [1, 2]}}
    ).resolved()
    place = SurveyDir(tmp_path / "survey")
    place.settle(survey)
    for spec in survey.run_specs():
        threads = spec.recipe.threads
        recipe = simulated.recipe(source, "full", spec.seed, threads=threads)
        simulated.run(place.run(spec.name).folder, recipe, machine={"threads": threads})
    comparison = compare(place.path)
    assert [v.label for v in comparison.variants] == ["threads=1", "threads=2"]
    assert said(comparison) == []
    assert all("step_seconds" in v.cost for v in comparison.variants)
