"""The forms of a run's JSON files, as far as bough reads them: what is damaged is found at once."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel, ValidationError

from bough.errors import UserError, shorten
from bough.recipe.yaml import dotted

Number = Annotated[float, Field(strict=True)]  # a loss may be NaN
Amount = Annotated[float, Field(strict=True, ge=0, le=1e24, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]


class Open(BaseModel, extra="allow"):
    """There may be more in it than is read."""


class Judged(Open):
    """All tasks' scores on one split."""

    tasks: dict[str, dict[str, Any]]


class Entry(Open):
    """A line of metrics.jsonl."""

    step: Count
    steps: Count | None = None
    loss: dict[str, Number | None] = {}
    cosines: dict[str, dict[str, Number | None]] | None = None
    dev: Judged | None = None
    seconds: Amount = 0.0


class Rows(Open):
    """One task's on one split."""

    rows: Count
    sha256: str
    repeated: Count = 0


class Environment(Open):
    """environment.json: the machine, the versions, and what the rows are known by."""

    data: dict[str, dict[str, Rows]] = {}
    packages: dict[str, str] = {}
    python: str = ""
    system: str = ""
    processor: str = ""
    gpu: str | None = None
    cores: Count | None = None
    threads: Count | None = None
    device: str | None = None
    processes: Count | None = None
    kernels: str | None = None
    memory: Amount | None = None


class Cost(RootModel[dict[str, Amount | dict[str, Amount] | None]]):
    """cost.json."""


class Scores(RootModel[dict[str, Judged]]):
    """scores.json: split -> scores."""


def check(form: type[BaseModel], content: Any, wrong: str, mend: str) -> dict[str, Any]:
    """The content, if it has this form; else what is wrong, where, and how to mend it."""
    try:
        form.model_validate(content)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        # Where a value may be of several types, the place ends with the type that was tried.
        path = tuple(
            part for part in first["loc"] if not str(part).startswith(("dict[", "constrained-"))
        )
        what = "missing" if first["type"] == "missing" else shorten(first["input"])
        key = dotted(path) or "the content"
        raise UserError(f"{wrong}, {key} is {what}; {mend}") from None
    return dict(content)
