"""One survey and its report, for all that look at it and leave it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bough.comparison.compare import Comparison, compare
from bough.reports.page import report
from tests import simulated

LONG = "card_payment_fee_charged_without_reason"  # a class's name, but for its number


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


@pytest.fixture(scope="package")
def many_classes(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """One run whose task has 40 classes with long names."""
    folder = tmp_path_factory.mktemp("many")
    source = simulated.data(folder / "data", 2400)
    for file in source.glob("sst-*.tsv"):
        head, *lines = file.read_text().splitlines()
        named = [f"{line[:-1]}{LONG}_{n % 40:02}" for n, line in enumerate(lines * 2)]
        file.write_text("\n".join([head, *named[: max(len(lines), 40)]]) + "\n")
    recipe = simulated.recipe(source, "full", 0, tasks=("sst",))
    return compare([simulated.run(folder / "run", recipe)])
