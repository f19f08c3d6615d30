"""One survey and its report, for all that look at it and leave it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.comparison.compare import Comparison, compare
from bough.reports.page import report
from tests import simulated


@pytest.fixture(scope="package")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plans = ["separate", "full", "split@2", "split@4"]
    return simulated.survey(tmp_path_factory.mktemp("survey"), plans, 2, cosines=True)


@pytest.fixture(scope="package")
def comparison(survey: Path) -> Comparison:
    return compare([survey])


@pytest.fixture(scope="package")
def file(survey: Path) -> Path:
    return report(survey, survey / "report.html")


@pytest.fixture(scope="package")
def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
