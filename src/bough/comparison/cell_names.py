"""What the cells of a survey are called: by the survey's file, or after what it changes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bough.errors import UserError
from bough.recipe import yaml
from bough.runs.run_dir import Run

Overrides = dict[str, Any]  # dotted key -> value
FILE = "survey.yaml"  # in a survey's directory
LONGEST = 80  # characters of a cell's name: it becomes a folder's


def cell_name(overrides: Overrides) -> str:
    """A name for a cell, fit for a folder: `split@3_lr=0.0001`."""
    ends = [key.split(".")[-1] for key in overrides]
    parts = []
    for (key, value), end in zip(overrides.items(), ends, strict=True):
        short = end if ends.count(end) == 1 else ".".join(key.split(".")[-2:])
        parts.append(_text(value) if key in ("plan", "tasks") else f"{short}={_text(value)}")
    name = re.sub(r"[^A-Za-z0-9_.@=+~-]+", "-", "_".join(parts)).strip("-.") or "cell"
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(json.dumps(overrides, sort_keys=True).encode()).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}-{digest}"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "+".join(f"{key}-{_text(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "+".join(map(_text, value))
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def find_cell(text: str, cells: Iterable[str]) -> str | None:
    """The cell that is meant, by its name or by its label in a comparison: `split@3, lr=0.0001`."""
    cells = list(cells)
    if text in cells:
        return text
    matching = [cell for cell in cells if _words(cell) == _words(text)]
    return matching[0] if len(matching) == 1 else None


def _words(text: str) -> list[str]:
    """What a cell's name and its label have in common: the order and the signs between differ."""
    return sorted(re.findall(r"[A-Za-z0-9.@=+~]+", text.replace("tasks=", "")))


@dataclass(frozen=True)
class SurveyCells:
    """The cells of a survey, and the one that its file holds the others against."""

    cells: Mapping[str, Overrides]
    baseline: str | None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> SurveyCells | None:
        """Those of the survey that all these are runs of, if there is one."""
        surveys = {run.folder.resolve().parent.parent for run in runs}
        file = surveys.pop() / FILE
        if surveys or not file.is_file():
            return None
        told, _ = yaml.parse(file.read_text(encoding="utf-8", errors="replace"), str(file))
        cells = told.get("cells") or {} if isinstance(told, dict) else None
        if not isinstance(cells, dict) or not all(isinstance(c, dict) for c in cells.values()):
            raise UserError(
                f"{file}: not the file of a survey, with its cells by name; put it back, or take "
                "it away and compare the runs without it"
            )
        return cls(cells, told.get("baseline"))

    def name(self, run: Run) -> str | None:
        """The cell of one of its runs; a trial of a search has none."""
        cell = re.sub(r"-s[0-9]+$", "", run.folder.name)
        return cell if cell in self.cells else None

    def given(self, run: Run) -> str | None:
        """The name that the file gives its cell; those of a grid are called after their keys."""
        cell = self.name(run)
        return None if cell is None or cell == cell_name(self.cells[cell]) else cell
