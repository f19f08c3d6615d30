"""The published studies: every file reads, every cell is a recipe and a plan, and smoke rises."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bough.cli.main import app
from bough.model.network import plan_of
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Plan
from bough.survey import published_studies
from bough.survey.spec import Survey
from bough.survey.survey import recipes
from bough.training.sampling import parse
from bough.training.train import train
from tests import folders

ROOT = Path(__file__).parents[2]
FILES = sorted(published_studies.folder().glob("*.yaml"))
BUDGETS = ["small", "medium", "full", "smoke"]
BERT = Shape("bert", 768, 12, 12, 3072, 30522, 512, 2, 768, 0, "gelu", 1e-12)
MINILM = Shape("bert", 384, 6, 12, 1536, 30522, 512, 2, 384, 0, "gelu", 1e-12)
SIZES = {
    "cfimdb": 1707, "sst": 8544, "para": 141_506, "quora": 141_506, "sts": 6040,
    "names": 3394, "topic": 8000,
}  # fmt: skip


@pytest.fixture(scope="module")
def six_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.encoder(tmp_path_factory.mktemp("six"), layers=6, width=16)


def by_name(name: str, budget: str) -> Survey:
    return Survey.read(published_studies.folder() / f"{name}.yaml").resolved(budget)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_cell_of_every_budget_is_a_recipe_and_a_plan(file: Path):
    study = Survey.read(file)
    assert [name for name in study.budgets if name != "tiny"] == BUDGETS
    assert study.asks
    assert study.printed
    for budget in study.budgets:
        survey = study.resolved(budget)
        found = [recipe for recipe, _ in recipes(survey)]
        single = budget == "smoke" or survey.search is not None
        assert len(survey.seeds) == 1 if single else len(survey.seeds) >= 3
        plans: list[Plan] = []
        for recipe in found:
            training = recipe.training
            shape = BERT if budget == "full" else MINILM
            usual = "google-bert/bert-base-uncased" if shape is BERT else "minilm"
            # Or what a pretraining has made of it, by the commands in the study's head.
            assert recipe.encoder == usual or recipe.encoder.startswith("runs/b_read/")
            plans.append(plan_of(recipe.plan, recipe.tasks, shape))
            sizes = {name: SIZES[name] for name in recipe.tasks}
            parse(
                training.sampling,
                sizes,
                training.batch,
                training.epochs or 3,
                training.steps_per_epoch,
            )
        assert len({plan.text for plan in plans}) == len({str(r.plan) for r in found}), (
            "no plan twice"
        )


def test_every_run_of_a_budget_is_as_long_as_the_others():
    for file in FILES:
        for recipe_budget in ("small", "medium"):
            found = [r for r, _ in recipes(Survey.read(file).resolved(recipe_budget))]
            lengths = {
                (r.training.steps, r.training.tokens, r.training.phases, r.training.epochs)
                for r in found
                if "frozen" not in str(r.plan)  # costs a small part of the others
            }
            assert len(lengths) <= 1, file.stem


def test_system_a_is_as_specified():
    survey = by_name("a_late_tuned", "full")
    regimes = ["III", "IIS", "ISI", "SII", "ISS", "SIS", "SSI", "SSS"]
    assert [s.recipe.plan for s in survey.run_specs()[:8]] == [f"late:{r}" for r in regimes]
    recipe = survey.base
    training = recipe.training
    assert (training.epochs, training.steps_per_epoch, training.batch) == (10, 1000, 8)
    assert (training.lr, training.sampling, training.schedule) == (1e-5, "each", "constant")
    assert by_name("a_late_frozen", "full").base.training.lr == 1e-3
    para, sts = recipe.tasks["para"], recipe.tasks["sts"]
    assert (para.features, para.loss, para.twin) == (("sum",), "bce", True)
    assert (sts.project, sts.head, sts.range) == (True, "cosine-linear", (0, 5))
    assert len(set(recipe.task_weights().values())) == 1
    weights = by_name("a_weights", "full").run_specs()
    assert len({tuple(s.recipe.training.weights.values()) for s in weights}) == 7
    for spec in weights:
        assert sum(spec.recipe.training.weights.values()) == pytest.approx(1, abs=1e-3)


def test_systems_b_to_e_are_as_specified():
    pal = plan_of("pal:204", by_name("b_pal", "full").base.tasks, BERT)
    assert pal.adapters[0].heads == 12
    assert by_name("b_pal", "full").base.training.steps_per_epoch == 1950
    plans = [str(s.recipe.plan) for s in by_name("c_split", "full").run_specs()]
    assert {f"split@{n}" for n in range(12)} | {"full", "separate"} == {*plans}
    assert len(by_name("c_split", "small").cells) == 8
    head = by_name("c_split", "full").base.tasks["para"]
    assert (head.head, head.depth, head.width, head.pair) == ("mlp", 3, 256, "joint")
    methods = by_name("d_methods", "full").run_specs()
    assert {s.recipe.training.sampling for s in methods} == {"method1", "method2", "method3"}
    subsets = [tuple(s.recipe.tasks) for s in by_name("d_number_of_tasks", "full").run_specs()]
    assert len(set(subsets)) == 7
    feeds = by_name("e_feeds", "full").base
    assert [phase.frozen for phase in feeds.training.phases] == [True, False]
    assert all(task.norm for task in feeds.tasks.values())


def test_the_list_tells_what_was_asked_printed_and_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["studies"])
    assert shown.exit_code == 0
    for file in FILES:
        assert file.stem in shown.output
    assert "asks:    How does the score change with the number of shared layers?" in shown.output
    assert "hybrid" in shown.output
    assert "bough survey" in shown.output


def laid_out(folder: Path) -> None:
    """As a wheel lays it out, by what pyproject.toml says."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = told["targets"]["wheel"]
    for package in wheel["packages"]:
        shutil.copytree(ROOT / package, folder / Path(package).name)
    for source, place in wheel["force-include"].items():
        shutil.copytree(ROOT / source, folder / place)


def built(folder: Path) -> None:
    """As hatchling builds it."""
    wheels = pytest.importorskip("hatchling.builders.wheel")
    (file,) = wheels.WheelBuilder(str(ROOT)).build(directory=str(folder / "built"))
    zipfile.ZipFile(file).extractall(folder)


@pytest.mark.parametrize("install", [laid_out, built])
def test_the_studies_come_with_a_wheel(install: Callable[[Path], None], tmp_path: Path):
    install(tmp_path)
    code = "from bough.survey import published_studies as s; print(*s.every(), sep='\\n')"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    place = tmp_path / "bough" / "recipes" / "studies"
    assert told.stdout.splitlines() == [str(place / file.name) for file in FILES]


@pytest.fixture(scope="module")
def few_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first rows of the real files: to read all of them takes most of a small run's time."""
    real, few = Path(os.environ["BOUGH_DATA"]), tmp_path_factory.mktemp("few")
    for folder in (real, real.parent / "extra"):
        (few / folder.name).mkdir()
        for file in folder.glob("*.*"):
            with open(file, encoding="utf-8", newline="") as opened:
                lines = list(islice(opened, 6000 if file.suffix == ".conll" else 2000))
            (few / folder.name / file.name).write_text("".join(lines), encoding="utf-8", newline="")
    return few / real.name


@pytest.mark.real
@pytest.mark.skipif("BOUGH_DATA" not in os.environ, reason="BOUGH_DATA is not set")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_cell_of_every_study_trains(
    file: Path, six_layers: Path, few_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The last cell, which tends to be the least usual, on real rows with a small encoder."""
    monkeypatch.setenv("BOUGH_DATA", str(few_rows))
    last, _ = recipes(Survey.read(file).resolved("smoke"))[-1]
    run = train(last, tmp_path / "run", [f"encoder={six_layers}", "threads=1", "max_length=32"])
    assert set(run.scores["dev"]["tasks"]) == set(last.tasks)
