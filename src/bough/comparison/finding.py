"""Runs that a user names: by their directories, their survey's, or a folder of runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from bough.comparison.cell_names import FILE
from bough.data.tables import READERS
from bough.errors import UserError, listed
from bough.runs.run_dir import Run


def find_runs(paths: Iterable[str | Path]) -> list[Run]:
    """Run directories, and those within surveys (DIR/runs/*) and plain folders of runs (DIR/*)."""
    runs: dict[Path, Run] = {}
    for path in (Path(given).expanduser() for given in paths):
        if not path.is_dir():
            raise UserError(f"{path}: no such run directory or survey")
        if (path / "recipe.yaml").is_file() and _folder_of_runs(path) == path:
            folders = [path]
        else:
            folders = [f for f in _folder_of_runs(path).iterdir() if (f / "recipe.yaml").is_file()]
            data = [f.name for f in path.iterdir() if f.suffix.lower() in READERS]
            if not folders and (surveys := _surveys_in(path)):
                how = _by_themselves(surveys)
                raise UserError(f"{path}: there are no runs in it but those of surveys; {how}")
            if not folders and data:
                raise UserError(
                    f"{path}: holds data ({listed(sorted(data), 3)}), and no run; name the folders "
                    "that bough train wrote"
                )
            if not folders:
                raise UserError(f"{path}: an empty survey, there is no run in it; run it first")
        for folder in sorted(folders, key=_natural):
            runs.setdefault(folder.resolve(), Run.open(folder))
    if not runs:
        raise UserError("nothing to compare; name run directories or a survey")
    return list(runs.values())


def left_surveys(paths: Iterable[str | Path]) -> list[str]:
    """A word on surveys in the folders given: their runs are not among those of the folder."""
    given = [Path(path).expanduser() for path in paths]
    asked = {path.resolve() for path in given}
    left = [s for path in given for s in _surveys_in(path) if s.resolve() not in asked]
    return [f"left out, the runs of surveys; {_by_themselves(left)}"] if left else []


def _surveys_in(path: Path) -> list[Path]:
    found = (file.parent for file in _folder_of_runs(path).glob(f"*/{FILE}"))
    return sorted((survey for survey in found if (survey / "runs").is_dir()), key=_natural)


def _by_themselves(surveys: Sequence[Path]) -> str:
    commands = [f"bough compare {shlex.quote(str(survey))}" for survey in surveys]
    return f"compare them with: {some(commands)}"


def _folder_of_runs(path: Path) -> Path:
    """A survey's runs lie in a folder of its own."""
    inside = path / "runs"
    return inside if inside.is_dir() else path


def _natural(path: Path) -> list[tuple[str, int]]:
    """run-2 before run-10."""
    return [(word, int(part or 0)) for word, part in re.findall(r"(\D*)(\d*)", path.name)]


def finished(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Those of tasks that came to their end, and a word on the others."""
    read = [str(run.folder) for run in runs if run.pretrained]
    runs = [run for run in runs if not run.pretrained]
    if not runs:
        raise UserError(f"{some(read)}: pretraining only, there are no tasks to compare")
    done = [run for run in runs if run.finished]
    left = [str(run.folder) for run in runs if not run.finished]
    if not done:
        raise UserError(f"none of the runs is finished: {some(left)}; resume them first")
    told = {"left out, not finished": left, "left out, pretraining only": read}
    return done, [f"{why}: {some(names)}" for why, names in told.items() if names]


def some(paths: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(paths[:most]) + more
