"""One run of a survey, to its end: what a task of a Slurm array, or of Ray, does on its machine.

python -m bough.survey.one_run SURVEY RUN [KEEP]

The survey's directory is a folder that all machines see. Whoever comes second to a run waits until
the first has let go of it; then the run is resumed, or there is nothing left to do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.survey.cells import RunSpec
from bough.survey.launcher import GridScheduler, Keep, Launcher
from bough.survey.progress import Progress
from bough.survey.survey_dir import SurveyDir


def do(path: Path, name: str, keep: Keep = "models") -> int:
    """The run's exit code: 0 done, 1 failed, 130 told to stop."""
    folder = SurveyDir(path)
    if not folder.recipe(name).is_file():
        raise UserError(f"{path}: has no run {name!r} to do")
    cell, _, seed = name.rpartition("-s")
    spec = RunSpec(cell, int(seed), Recipe.read(folder.recipe(name)))
    progress = Progress(name, 1, 1, folder.run)
    complete = Launcher(GridScheduler([spec], folder), folder, 1, progress, keep).run()
    if not complete:
        return 130
    return 0 if folder.run(name).finished else 1


if __name__ == "__main__":
    where, run, *rest = sys.argv[1:]
    try:
        sys.exit(do(Path(where), run, cast(Keep, rest[0] if rest else "models")))
    except UserError as error:
        sys.exit(f"bough: {error}")
