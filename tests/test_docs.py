"""What the README and the docs show is true: its recipe, its Python, its links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import bough
from bough import demo
from bough.data.drafting.init_recipe import init
from bough.export.onnx_export import write_onnx
from tests import folders

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
# Python that is run as it stands, page by page; the runs, files and exports that it names are made
# for it, small. What is left needs the hub, a server or transformers, and is compiled only.
RUN = {
    "README.md": "recipe.yaml",
    "docs/comparing.md": "runs/second",
    "docs/export.md": "out/onnx",
    "docs/using.md": "reviews.txt",
}
ELSEWHERE = ("push_to_hub", "urllib", "from transformers")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the course's recipe made small, the embedded rows in the course's form."""
    monkeypatch.chdir(tmp_path)
    recipe = yaml.safe_load((ROOT / "recipes" / "cs224n.yaml").read_text(encoding="utf-8"))
    recipe |= {"encoder": str(tiny_folder), "data": str(folders.course(tmp_path / "data"))}
    recipe |= {"plan": "full", "training": {"steps": 2, "evaluate_rows": 8}}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "cs224n.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return tmp_path


def prepare(needed: str) -> None:
    """What stands there before a page's Python is run: all up to the file that it needs."""
    recipe = Path("recipes/cs224n.yaml")
    if needed == "recipe.yaml":  # the quick start's, made small
        demo.copy_files(Path())
        init([Path("sentiment.csv"), Path("questions.csv")], Path(needed))
        small = yaml.safe_load(recipe.read_text(encoding="utf-8"))
        made = yaml.safe_load(Path(needed).read_text(encoding="utf-8"))
        made |= {key: small[key] for key in ("encoder", "training")}
        Path(needed).write_text(yaml.safe_dump(made), encoding="utf-8")
        bough.train(needed, "runs/first")
        return
    first = bough.train(recipe, "runs/first")
    if needed == "runs/second":
        bough.train(recipe, "runs/second", ["plan=separate"])
    elif needed == "out/onnx":
        Path("out").mkdir()
        write_onnx(first.folder, needed)
    else:
        Path(needed).write_text("A fine film.\nNot for me.\n", encoding="utf-8")


@pytest.mark.parametrize("page", RUN)
def test_python_runs_as_it_is_printed(page: str, place: Path) -> None:
    prepare(RUN[page])
    ready = [code for code in blocks(page, "python") if not any(w in code for w in ELSEWHERE)]
    assert ready
    exec(compile("\n".join(ready), page, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", NAMES)
def test_all_python_compiles(page: str) -> None:
    for code in blocks(page, "python"):
        if not code.startswith(">>>"):  # examples with their output, run by the tests of plans
            compile(code, page, "exec")


def test_the_readme_prints_the_recipe() -> None:
    (printed,) = blocks("README.md", "yaml")
    file = ROOT / "recipes" / "cs224n.yaml"
    assert yaml.safe_load(printed) == yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target = link.partition("#")[0]
        if target and "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {link}"
