"""A model's `config.json`: what the weights beside it are, read through one form. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictInt,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from bough.errors import UserError
from bough.plan.encoder_pooling import BEFORE_AUTO, OwnPooling
from bough.plan.encoder_shape import Shape
from bough.recipe import yaml
from bough.recipe.kinds import METRICS
from bough.recipe.raw_settings import RawSettings
from bough.recipe.tasks import Metric, Task
from bough.recipe.validation import Consistent, misfit

FILE = "config.json"


def _example(value: object) -> object:
    parts = value if isinstance(value, list) and len(value) == 2 else [value]
    if all(isinstance(part, str) for part in parts):
        return value
    raise ValueError("expected a text, or a list of two")


class Open(BaseModel):
    """A part of the facts: there may be more in it than the card reads."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Score(Open):
    """One task's on one split."""

    metric: Metric
    rows: int
    interval: Annotated[list[float], Field(min_length=2, max_length=2)] = []

    @model_validator(mode="after")
    def _counts(self) -> Self:
        beside = self.model_extra or {}
        if not isinstance(beside.get(self.metric), int | float):
            raise misfit(f"there is no {self.metric} beside it", "metric")
        for name in METRICS & beside.keys():
            if not isinstance(beside[name], int | float):
                raise misfit("expected a number", name)
        return self


class Scores(Open):
    """All tasks' on one split."""

    tasks: dict[str, Score]


class Cost(Open):
    """Of training, and of serving."""

    parameters: int
    bytes_to_serve: int
    training_seconds: float = 0
    peak_memory: int = 0


class Split(Open):
    """Rows of one task."""

    rows: int
    source: str


class Pooling(Open):
    """The encoder's own, and how it is known."""

    name: OwnPooling
    reason: str


class Calibration(Open):
    """What one task's temperature did to its probabilities on the dev rows."""

    temperature: float
    ece_before: float
    ece: float


class Int8Score(Open):
    """What rounding to int8 did to one task's dev score."""

    task: str
    metric: str
    before: float
    after: float
    rows: int


class Facts(Open):
    """What the card says of the model beside its tasks."""

    encoder: str = ""
    pooling: Pooling | None = None
    saw_quora: bool = False
    examples: list[Annotated[Any, PlainValidator(_example)]] = []
    scores: dict[str, Scores] = {}
    calibration: dict[str, Calibration] = {}
    int8: dict[str, Int8Score] = {}
    cost: Cost | None = None
    data: dict[str, dict[str, Split]] = {}
    training: dict[str, Any] = {}
    sha256: str = ""
    runtime: Literal["torch", "onnx"] = "torch"
    weights: Literal["fp32", "int8"] = "fp32"


class Config(Consistent):
    """All of a model but its weights and its tokenizer."""

    model_config = ConfigDict(frozen=True)

    plan: str
    tasks: Annotated[dict[str, Task], AfterValidator(BEFORE_AUTO.resolve)] = Field(min_length=1)
    shape: Shape
    longest: StrictInt = Field(ge=1)
    facts: Facts = Facts()

    def _problems(self) -> Iterator[tuple[yaml.Path, str]]:
        for key, problem in self.shape.problems():
            yield ("shape", key), problem
        if self.longest > self.shape.longest:
            problem = f"{self.longest} tokens are more than the encoder's {self.shape.longest}"
            yield ("longest",), problem
        for name, task in self.tasks.items():
            if not task.settled:
                key = task.rules.found[0]
                yield ("tasks", name, key), f"null; a trained {task.kind} task has its {key}"


def read(folder: Path) -> Config:
    """The config in a model's folder."""
    failed = f"{folder / FILE}: not a bough model's config"
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if isinstance(content, dict) and "model_type" in content:
            raise UserError(
                f"{folder}: a checkpoint for transformers, not a bough model; name the run itself"
            )
        return Config.model_validate(content)
    except ValidationError as fault:
        raise RawSettings({}, failed, {}, None, _keys, "config").user_error(
            fault.errors()
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{failed} ({type(error).__name__}: {error})") from None


def _keys(path: yaml.Path) -> Mapping[str, FieldInfo] | None:
    return Task.model_fields if len(path) == 2 and path[0] == "tasks" else None
