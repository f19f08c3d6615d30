"""Imports point one way, what needs no torch does not load it, and help comes at once."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "bough"
# The folders from the bottom up: each may import those before it, and none after it. What stands
# beside them at the root (errors, files, ...) is below all.
ORDER = (
    "recipe", "plan", "data", "model", "scoring", "runs", "inference", "training", "comparison",
    "reports", "survey", "export", "serve", "demo", "cli",
)  # fmt: skip
FACE = {"bough", "__main__"}  # the public names, and `python -m bough`: both reach upwards
# What can be asked before, or without, loading torch: it takes seconds.
LIGHT = (
    "errors", "files", "paths", "formatting", "system", "signals", "recipe", "plan",
    "scoring", "data.rows", "data.tables", "runs.run_dir", "runs.predictions",
    "comparison", "inference.config", "cli",
)  # fmt: skip


def rooms() -> dict[str, Path]:
    out = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        out[".".join(part for part in parts if part != "__init__") or "bough"] = file
    return out


ROOMS = rooms()


def imported(room: str, everywhere: bool) -> set[str]:
    """The rooms that a room imports: at its top, or anywhere in it."""
    tree = ast.parse(ROOMS[room].read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    out: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{room}: rooms are named in full"
            module = node.module or ""
            names = [module, *(f"{module}.{name.name}" for name in node.names)]
        else:
            continue
        ours = {n.removeprefix("bough.") for n in names if n == "bough" or n.startswith("bough.")}
        out |= {name for name in ours if name in ROOMS}
    return out - {room, "bough"}


def folder(room: str) -> str:
    """The folder of a module; the root's own modules are all one."""
    return room.partition(".")[0] if room.partition(".")[0] in ORDER else ""


def test_the_order_names_every_folder() -> None:
    assert sorted(ORDER) == sorted(p.parent.name for p in SOURCE.glob("*/__init__.py"))


def test_imports_point_one_way() -> None:
    place = {name: number for number, name in enumerate(ORDER, 1)} | {"": 0}
    for room in ROOMS.keys() - FACE:
        above = [r for r in imported(room, True) if place[folder(r)] > place[folder(room)]]
        assert not above, f"{room} imports {above}, which stand above it"


def test_no_import_goes_in_a_circle() -> None:
    graph = {room: imported(room, everywhere=False) for room in ROOMS.keys() - FACE}
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


def test_no_room_reaches_into_anothers_private_names() -> None:
    for room, file in ROOMS.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bough"):
                private = [name.name for name in node.names if name.name.startswith("_")]
                private = [name for name in private if not name.startswith("__")]
                assert not private, f"{room} imports {private} from {node.module}"


def test_no_function_stands_in_two_rooms() -> None:
    """Whatever its name and its words: one of them would be mended, and the other not."""
    seen: dict[str, str] = {}
    for room, file in ROOMS.items():
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            said = ast.get_docstring(node) is not None
            parts = [ast.dump(node.args), *map(ast.dump, node.body[said:])]
            content = "".join(parts).replace(repr(node.name), "itself")
            assert content not in seen, f"{node.name} of {room} stands in {seen[content]}, too"
            seen[content] = room


def test_light_rooms_load_without_torch() -> None:
    light = [r for r in ROOMS for known in LIGHT if r == known or r.startswith(f"{known}.")]
    heavy = ("torch", "transformers", "scipy", "sklearn", "pyarrow", "datasets", "pandas")
    code = (
        "import importlib, json, sys\n"
        "found = {}\n"
        f"for room in {light!r}:\n"
        "    importlib.import_module('bough.' + room)\n"
        f"    found[room] = [name for name in {heavy!r} if name in sys.modules]\n"
        "print(json.dumps(found))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == {room: [] for room in light}


def test_the_package_itself_loads_without_torch() -> None:
    code = (
        "import sys, bough; bough.UserError, bough.Recipe, bough.Plan; "
        "print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_transformers_is_for_tests_only() -> None:
    """And for the code that an export carries with it, which in turn knows nothing of bough."""
    assert imported("export.modeling_bough", everywhere=True) == set()
    for room, file in ROOMS.items():
        if room == "export.modeling_bough":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not [n for n in names if n.split(".")[0] == "transformers"], room


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"]])
def test_help_comes_at_once(words: list[str]) -> None:
    """Half a second, on a machine that may be busy: the best of a few, in processor time."""
    command = [str(Path(sys.executable).parent / "bough"), *words]
    best = 9.0
    for _ in range(5):
        before, began = os.times(), time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        after, wall = os.times(), time.perf_counter() - began
        spent = after.children_user + after.children_system
        best = min(best, wall, spent - before.children_user - before.children_system)
        if best < 0.5:
            return
    pytest.fail(f"{' '.join(words)} took {best:.2f} s")
