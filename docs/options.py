"""Write the tables of options in docs/training.md from the recipe's own descriptions."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from bough.recipe import Phase, Training

PAGE = Path(__file__).parent / "training.md"
MODELS: dict[str, type[BaseModel]] = {"Training": Training, "Phase": Phase}


def table(model: type[BaseModel]) -> str:
    """Every key with its default, as a recipe would have it, and its sentence."""
    lines = ["| key | default | |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        value = field.get_default(call_default_factory=True)
        default = f"{value:g}" if isinstance(value, float) else json.dumps(value).strip('"')
        lines.append(f"| `{name}` | `{default}` | {field.description} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its tables as they should be."""
    for name, model in MODELS.items():
        start, end = f"<!-- options: {name} -->\n", "<!-- end -->"
        before, rest = text.split(start)
        text = f"{before}{start}{table(model)}\n{rest[rest.index(end) :]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
