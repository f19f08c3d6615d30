"""The recipes of the five systems are complete, commented, and run; the docs' tables are true."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bough.model.network import plan_of
from bough.recipe.recipe import Recipe
from bough.recipe.sources import Hub
from bough.survey.spec import Survey
from bough.training.train import train
from tests import folders, tiny

ROOT = Path(__file__).parent.parent
SYSTEMS = ("a_late", "b_pal", "c_hybrid", "d_batching", "e_progressive")
# What a small encoder of two layers and a few rows need to be different.
SMALLER = {
    "a_late": ["training.steps=3"],
    "b_pal": ["training.steps=3"],
    "c_hybrid": ["training.steps=3", "plan=split@1"],
    "d_batching": ["training.steps=3"],
    "e_progressive": ["training.phases=[{frozen: true, steps: 3, lr: 1e-3}, {steps: 2}]"],
    "cs224n": ["training.steps=3", "plan=split@1"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.course(tmp_path_factory.mktemp("cs224n"))


@pytest.mark.parametrize("name", SMALLER)
def test_every_recipe_runs(
    name: str, data: Path, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOUGH_DATA", str(data))
    overrides = [f"encoder={tiny_folder}", "training.evaluate_rows=8", *SMALLER[name]]
    run = train(ROOT / "recipes" / f"{name}.yaml", tmp_path / name, overrides)
    assert len(run.scores["dev"]["tasks"]) == 3


@pytest.mark.parametrize("file", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda f: f.stem)
def test_every_recipe_says_how_it_is_run(
    file: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOUGH_DATA", str(data))
    assert Recipe.read(file).tasks
    head = file.read_text(encoding="utf-8").split("\nencoder:")[0]
    assert f"bough train recipes/{file.name}" in head


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_line_of_a_head_comment_works(
    name: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a comment says can be set, can be; and it has the command and the score to expect."""
    monkeypatch.setenv("BOUGH_DATA", str(data))
    file = ROOT / "recipes" / f"{name}.yaml"
    head = file.read_text(encoding="utf-8").split("\nencoder:")[0]
    assert f"bough train recipes/{name}.yaml -o runs/{name}\n" in head
    assert "Printed (bert-base" in head
    settings = re.findall(r"--set (?:'([^']+)'|(\S+))", head)
    assert len(settings) >= 4
    shape = replace(tiny.shape(), layers=12, width=768, heads=12)
    for quoted, plain in settings:
        recipe = Recipe.read(file, [quoted or plain])
        assert plan_of(recipe.plan, recipe.tasks, shape)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_as_it_was_printed(
    name: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOUGH_DATA", str(data))
    recipe = Recipe.read(ROOT / "recipes" / f"{name}.yaml")
    training, sts, para = recipe.training, recipe.tasks["sts"], recipe.tasks["para"]
    assert (training.schedule, training.warmup) == ("constant", 0)
    assert all(task.dropout == 0.3 for task in recipe.tasks.values())
    assert all(task.pooling == "pooler" for task in recipe.tasks.values())
    said = (recipe.plan, training.sampling, training.combine, training.batch, training.select)
    assert (
        said
        == {
            "a_late": ("late:III", "each", "sum", 8, "raw"),
            "b_pal": ("pal:204", "annealed", "sum", 40, "raw"),
            "c_hybrid": ("split@3", "each", "pcgrad", 16, "normalised"),
            "d_batching": ("full", "method1", "sum", 32, "sum"),
            "e_progressive": ("feed:sst>para>sts", "each", "sum", 8, "normalised"),
        }[name]
    )
    assert (para.pair, sts.head) == {
        "a_late": ("twin", "cosine-linear"),
        "b_pal": ("twin", "cosine-sigmoid"),
        "c_hybrid": ("joint", "mlp"),
        "d_batching": ("twin", "linear"),
        "e_progressive": ("twin", "mlp"),
    }[name]


@pytest.mark.parametrize("plan", ["separate", "separate, frozen"])
def test_single_tasks(
    plan: str, data: Path, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in ("train", "dev"):
        lines = (data / f"ids-sst-{split}.csv").read_text(encoding="utf-8").splitlines()
        rows = [line.rpartition("\t")[0] for line in lines[1:]]
        reviews = [f"{row} {'and so on ' * 30}\t{i % 2}" for i, row in enumerate(rows)]
        file = tmp_path / f"ids-cfimdb-{split}.csv"
        file.write_text("\n".join([lines[0], *reviews]) + "\n", encoding="utf-8")
        (tmp_path / f"ids-sst-{split}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setenv("BOUGH_DATA", str(tmp_path))
    file = ROOT / "recipes" / "single.yaml"
    head = file.read_text(encoding="utf-8").split("\nencoder:")[0]
    assert "The score to expect. Printed (bert-base; sst)" in head
    for quoted, plain in re.findall(r"--set (?:'([^']+)'|(\S+))", head):
        Recipe.read(file, [quoted or plain])
    overrides = [f"encoder={tiny_folder}", f"plan={plan}", "training.steps=3"]
    run = train(file, tmp_path / "run", overrides)
    assert set(run.scores["dev"]["tasks"]) == {"sst", "cfimdb"}
    assert run.recipe().max_length == 512


def test_the_tables_of_options_are_true() -> None:
    spec = importlib.util.spec_from_file_location("options", ROOT / "docs" / "options.py")
    assert spec is not None
    assert spec.loader is not None
    options = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(options)
    for file in options.PAGES:
        assert options.page(file) == file.read_text(encoding="utf-8"), "run python docs/options.py"
    assert "| `batch` | `32` |" in (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_recipes(path: Path) -> None:
    Recipe.read(path)
    head = path.read_text().splitlines()[0]
    assert head.startswith("# "), "the head comment says what it is and the command"
    assert f"bough train recipes/{path.name}" in path.read_text()


def test_the_courses_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BOUGH_DATA", str(tmp_path))
    recipe = Recipe.read(ROOT / "recipes" / "cs224n.yaml")
    assert list(recipe.tasks) == ["sst", "quora", "sts"]
    assert (recipe.rows, recipe.plan, recipe.root) == ("skip", "split@3", tmp_path.resolve())
    assert recipe.training.lr == 5e-5


QUALITY = sorted((ROOT / "recipes" / "quality").glob("*.yaml"))


@pytest.mark.parametrize("path", QUALITY, ids=lambda p: p.name)
@pytest.mark.parametrize("budget", ["small", "full", "smoke"])
def test_the_surveys_of_quality(path: Path, budget: str, data: Path) -> None:
    """Every cell is a recipe, its plan fits MiniLM, and all cells have as many steps for the three
    tasks that count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOUGH_DATA", str(data))
        survey = Survey.read(path).resolved(budget)
        found = [spec.recipe for spec in survey.run_specs()]
    assert len(found) == len(survey.cells) * len(survey.seeds)
    assert len(survey.seeds) == (1 if budget == "smoke" else 3)
    shape = replace(tiny.shape(), layers=6, width=384, heads=12)
    lengths = set()
    for recipe in found:
        plan_of(recipe.plan, recipe.tasks, shape)
        phases = recipe.training.phases
        lengths.add(phases[-1].steps if phases else recipe.training.steps)
    assert len(lengths) == 1


def test_the_best_recipe_has_a_teacher_for_each_task(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found beside the recipe, of the same rows, classes and form."""
    monkeypatch.setenv("BOUGH_DATA", str(data))
    monkeypatch.chdir(data)
    best = Recipe.read(ROOT / "recipes" / "best_minilm.yaml")
    for name, task in best.tasks.items():
        (teacher,) = task.teacher
        assert teacher.recipe == str(ROOT / "recipes" / "best_mpnet.yaml")
        theirs = Recipe.read(teacher.recipe).tasks[name]
        for key in ("kind", "text", "label", "train", "dev", "range"):
            assert getattr(theirs, key) == getattr(task, key)


def test_the_recipe_of_hub_sets() -> None:
    recipe = Recipe.read(ROOT / "recipes" / "hub.yaml")
    sources = [source for task in recipe.tasks.values() for source in (task.train, task.dev)]
    assert all(isinstance(source, Hub) for source in sources)
