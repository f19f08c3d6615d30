"""The shape of the source: imports point one way, what needs no torch does not load it, no folder,
module or function grows beyond what a reader holds, and every module has its tests where one looks.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests import folders

SOURCE = Path(__file__).parent.parent / "src" / "bough"
# The folders from the bottom up: each may import those before it, and none after it. What stands
# beside them at the root (errors, files, ...) is below all.
ORDER = (
    "native", "spans", "parts_of_speech", "recipe", "plan", "data", "model", "scoring", "runs",
    "inference",
    "training", "pretraining", "comparison", "reports", "survey", "export", "graft", "serve",
    "demo", "cli",
)  # fmt: skip
FACE = {"bough", "__main__"}  # the public names, and `python -m bough`: both reach upwards
# What can be asked before, or without, loading torch: it takes seconds.
LIGHT = (
    "errors", "extras", "files", "user_paths", "formatting", "safe_text", "templates",
    "machine_limits", "stop_signals", "distributed", "recipe", "plan", "spans",
    "scoring.metrics", "scoring.statistics", "data.checked_rows", "data.tables", "runs.run_dir",
    "runs.predictions", "comparison", "reports", "inference.config", "cli",
)  # fmt: skip
HEAVY = ("torch", "transformers", "scipy", "sklearn", "pyarrow", "datasets", "pandas")
# A reader holds so much at a time: modules in a folder, lines of a module and of a function.
MOST_MODULES, MOST_LINES, LONGEST_FUNCTION = 13, 400, 60
# The code that an export carries with it.
CARRIED = ("export.modeling_bough", "export.modeling_bough_trunk")
# Modules without a test file of their name, and where they are tried.
TESTED_ELSEWHERE = {
    "__main__": "`python -m bough`, in cli/test_main.py",
    "cli.compare": "in comparison/test_compare.py and reports/test_page.py",
    "cli.graft": "in graft/test_soup.py and graft/test_grafting.py",
    "cli.export": "in export/test_leaving.py",
    "cli.serve": "in serve/test_main.py",
    "cli.survey": "in survey/test_survey.py and test_published_studies.py",
    "cli.worker": "a process, in survey/test_launcher.py",
    "export.modeling_bough_trunk": "in export/test_modeling_bough.py",
    "model.families.build": "every family, in model/test_transformer.py",
    "model.families.parts": "every family, in model/test_transformer.py",
    "data.prepared.store": "in data/prepared/test_table.py",
    "data.prepared.streams": "in data/test_tables.py",
    "hub": "in model/test_pretrained.py and runs/test_model_card.py",
}


def modules() -> dict[str, Path]:
    out = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        out[".".join(part for part in parts if part != "__init__") or "bough"] = file
    return out


MODULES = modules()


def imported(name: str, everywhere: bool) -> set[str]:
    """The modules of bough that one imports: at its top, or anywhere in it."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    out: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if name in CARRIED:  # which stands elsewhere, under another package's name
                continue
            assert not node.level, f"{name}: modules are named in full"
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        ours = {n.removeprefix("bough.") for n in names if n == "bough" or n.startswith("bough.")}
        out |= ours & MODULES.keys()
    return out - {name, "bough"}


def folder(name: str) -> str:
    """The folder of a module; the root's own modules are all one."""
    return name.partition(".")[0] if name.partition(".")[0] in ORDER else ""


def test_the_order_names_every_folder() -> None:
    assert sorted(ORDER) == sorted(p.parent.name for p in SOURCE.glob("*/__init__.py"))


def test_imports_point_one_way() -> None:
    place = {name: number for number, name in enumerate(ORDER, 1)} | {"": 0}
    for name in MODULES.keys() - FACE:
        above = [n for n in imported(name, True) if place[folder(n)] > place[folder(name)]]
        assert not above, f"{name} imports {above}, which stand above it"


def test_no_import_goes_in_a_circle() -> None:
    graph = {name: imported(name, everywhere=False) for name in MODULES.keys() - FACE}
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


def test_no_module_reaches_into_anothers_private_names() -> None:
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bough"):
                private = [name.name for name in node.names if name.name.startswith("_")]
                private = [name for name in private if not name.startswith("__")]
                assert not private, f"{module} imports {private} from {node.module}"


def test_no_function_stands_in_two_modules() -> None:
    """Whatever its name and its words: one of them would be mended, and the other not."""
    seen: dict[str, str] = {}
    for module, file in MODULES.items():
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            documented = ast.get_docstring(node) is not None
            parts = [ast.dump(node.args), *map(ast.dump, node.body[documented:])]
            content = "".join(parts).replace(repr(node.name), "itself")
            assert content not in seen, f"{node.name} of {module} stands in {seen[content]}, too"
            seen[content] = module


def test_light_modules_load_without_torch() -> None:
    light = [n for n in MODULES for known in LIGHT if n == known or n.startswith(f"{known}.")]
    code = (
        "import importlib, json, sys\n"
        "loaded = {}\n"
        f"for module in {light!r}:\n"
        "    importlib.import_module('bough.' + module)\n"
        f"    loaded[module] = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(json.dumps(loaded))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {name: [] for name in light}


def test_the_package_itself_loads_without_torch() -> None:
    code = (
        "import sys, bough; bough.UserError, bough.Recipe, bough.Plan; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_transformers_is_for_tests_only() -> None:
    """And for the code that an export carries with it, which in turn knows nothing of bough."""
    for module in CARRIED:
        assert "import bough" not in (code := MODULES[module].read_text(encoding="utf-8"))
        assert "from bough" not in code
    for module, file in MODULES.items():
        if module in CARRIED:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not [n for n in names if n.split(".")[0] == "transformers"], module


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    """So it comes at once: what reads recipes and computes is loaded by the verb that needs it."""
    heavy = (*HEAVY, "numpy", "tokenizers", "safetensors", "huggingface_hub", "fastapi")
    code = (
        "import sys\n"
        "from bough.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_training_loads_neither_solvers_nor_the_compiler(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """Unless it asks for them: each takes a second of every start."""
    recipe = folders.small(tiny_folder, steps=2, heads="fitted")
    code = (
        "import sys, json\n"
        "from bough import train\n"
        f"train(json.loads({json.dumps(json.dumps(recipe))}), {str(tmp_path / 'run')!r})\n"
        "print([n for n in ('torchjd', 'torch._dynamo') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- sizes ----------------------------------------------------------------------------------------


def test_no_folder_has_too_many_modules() -> None:
    for place in (SOURCE, *(p for p in SOURCE.rglob("*") if p.is_dir())):
        inside = [file.stem for file in place.glob("*.py") if file.stem != "__init__"]
        assert len(inside) <= MOST_MODULES, f"{place}: {len(inside)} modules are two ideas"


def test_no_module_is_too_long() -> None:
    lines = {
        name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in MODULES.items()
    }
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = {}
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long[f"{module}.{node.name}"] = lines
    assert long == {}


def test_every_module_has_its_tests_where_one_looks() -> None:
    without = set()
    for name, file in MODULES.items():
        place = file.relative_to(SOURCE)
        mirror = Path(__file__).parent / place.parent / f"test_{place.name}"
        if file.stem != "__init__" and not mirror.is_file():
            without.add(name)
    assert without == TESTED_ELSEWHERE.keys()
