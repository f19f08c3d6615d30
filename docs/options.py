"""Write the tables of options in docs/ from the recipe's own descriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from bough.recipe.pretraining import Pretraining
from bough.recipe.recipe import Recipe
from bough.recipe.sources import Hub
from bough.recipe.tasks import Task
from bough.recipe.teacher import Teacher
from bough.recipe.training import Distil, Phase, Smart, Training

HERE = Path(__file__).parent
PAGES: dict[Path, dict[str, type[BaseModel]]] = {
    HERE / "training.md": {"Training": Training, "Smart": Smart, "Phase": Phase},
    HERE / "teachers.md": {"Distil": Distil, "Teacher": Teacher},
    HERE / "pretraining.md": {"Pretraining": Pretraining},
    HERE / "tasks.md": {"Recipe": Recipe, "Task": Task, "Hub": Hub},
}


def default(value: object) -> str:
    """As a recipe would have it."""
    if isinstance(value, BaseModel):
        return "{}"
    return f"{value:g}" if isinstance(value, float) else json.dumps(value).strip('"')


def table(model: type[BaseModel]) -> str:
    """Every key with its default and its sentence."""
    lines = ["| key | default | |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        given = field.get_default(call_default_factory=True)
        shown = "needed" if field.is_required() else f"`{default(given)}`"
        told = field.description or ""
        words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        if any(str(word) not in told for word in words):
            told += f" One of {', '.join(f'`{word}`' for word in words)}."
        lines.append(f"| `{name}` | {shown} | {told} |")
    return "\n".join(lines)


def page(file: Path) -> str:
    """The page with its tables as they should be."""
    text = file.read_text(encoding="utf-8")
    for name, model in PAGES[file].items():
        start, end = f"<!-- options: {name} -->\n", "<!-- end -->"
        before, rest = text.split(start)
        text = f"{before}{start}{table(model)}\n{rest[rest.index(end) :]}"
    return text


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(page(each), encoding="utf-8")
