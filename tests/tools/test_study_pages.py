"""The studies' pages say what their records say, and a record what the runs did."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from bough.comparison.compare import compare
from bough.errors import UserError
from bough.survey.published_studies import every
from bough.survey.survey_dir import SurveyDir
from tests import simulated
from tools import study_pages

RECORDS = study_pages.records()
PAGES = sorted(study_pages.PAGES.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_its_records_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert study_pages.rebuilt(text, RECORDS, study_pages.printed_scores()) == text


def test_every_record_is_on_a_page() -> None:
    shown = {name for page in PAGES for _, name, *_ in study_pages.BLOCK.findall(page.read_text())}
    assert shown == set(RECORDS)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_agrees_with_itself(name: str) -> None:
    record = RECORDS[name]
    base = next(v for v in record["variants"] if v["label"] == record["baseline"])
    for variant in record["variants"]:
        assert len(variant["seeds"]) >= 3
        for column, score in variant["scores"].items():
            assert len(score["runs"]) == len(variant["seeds"])
            assert score["interval"][0] <= score["value"] <= score["interval"][1]
            if column in variant["differences"]:
                apart = score["value"] - base["scores"][column]["value"]
                assert variant["differences"][column]["value"] == pytest.approx(apart, abs=2e-5)


@pytest.mark.parametrize("name", sorted({name.split(".")[0] for name in RECORDS}))
def test_what_was_found_is_in_the_record(name: str) -> None:
    """Every figure that `bough studies` prints of it is one of its tables or of its verdict."""
    study = {file.stem: survey for file, survey in every().items()}[name]
    known = [record for own, record in RECORDS.items() if own.split(".")[0] == name]
    said = "".join(part(record, {}) for record in known for part in study_pages.PARTS.values())
    figures = re.findall(r"\.\d{2,}", study.found)
    assert figures
    assert [figure for figure in figures if figure not in said] == []


# --- on simulated runs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "depth-small"
    return simulated.surveyed(folder, {"separate": "separate", "full": "full"})


def test_cells_with_names_go_by_them(tmp_path: Path) -> None:
    made = study_pages.record(
        simulated.surveyed(tmp_path, {"apart": "separate", "together": "full"})
    )
    assert made["baseline"] == "apart"
    assert {v["label"] for v in made["variants"]} == {"apart", "together"}
    assert any("with together" in line for line in made["verdict"])


def test_a_record_is_what_compare_says(folder: Path) -> None:
    made = study_pages.record(folder)
    known = compare([folder], baseline="separate")
    assert made["baseline"] == "separate"
    assert made["asks"] == "Does sharing help?"
    full = next(v for v in made["variants"] if v["label"] == "full")
    score = known.scores["full"]["sts"]
    assert score.difference is not None
    assert full["scores"]["sts"]["runs"] == pytest.approx(score.runs, rel=1e-5)
    assert full["differences"]["sts"]["p"] == pytest.approx(score.difference.holm, rel=1e-5)
    assert json.loads(json.dumps(made)) == made


def test_blocks_of_a_page(folder: Path) -> None:
    made = study_pages.record(folder)
    names = [f"<!-- depth: {part} -->\nold\n<!-- end -->\n" for part in study_pages.PARTS]
    page = study_pages.rebuilt("\n".join(["# Title", *names]), {"depth": made}, {})
    assert "old" not in page
    assert page.startswith("# Title\n")
    assert "| `full` | 3 | " in page
    assert "against `separate`" in page
    assert "> sts gains" in page
    assert "6 runs at the budget" in page
    assert study_pages.rebuilt(page, {"depth": made}, {}) == page
    beside = study_pages.rebuilt(page, {"depth": made}, {"depth": {"full": ".761"}})
    assert "| printed |" in beside
    assert "| .761 |" in beside


def test_a_changed_figure_is_noticed(folder: Path) -> None:
    made: dict[str, Any] = study_pages.record(folder)
    page = study_pages.rebuilt("<!-- d: scores -->\n<!-- end -->", {"d": made}, {})
    made["variants"][0]["scores"]["sst"]["value"] += 0.01
    assert study_pages.rebuilt(page, {"d": made}, {}) != page


def test_what_cannot_be_recorded(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no survey\.yaml"):
        study_pages.record(tmp_path)
    with pytest.raises(UserError, match="expected one of"):
        study_pages.rebuilt("<!-- other: scores -->\n<!-- end -->", {}, {})
    run = SurveyDir(folder).run("full-s1").folder / "scores.json"
    hidden = run.rename(run.with_suffix(".away"))
    try:
        with pytest.raises(UserError, match="1 of 6 runs are not done, full-s1 the first"):
            study_pages.record(folder)
    finally:
        hidden.rename(run)


def test_the_command(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "depth.md"
    page.write_text("# Depth\n\n<!-- depth: scores -->\n<!-- end -->\n", encoding="utf-8")
    monkeypatch.setattr(study_pages, "PAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["study_pages", "record", str(folder)])
    study_pages.main()
    assert "written anew" in capsys.readouterr().out
    assert json.loads((tmp_path / "depth.json").read_text())["budget"] == "small"
    assert "| `separate` | 3 |" in page.read_text()
