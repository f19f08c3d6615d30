"""Recipe: a whole experiment as one validated file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from bough.tasks import Task

Schedule = Literal["constant", "linear", "cosine", "onecycle"]
SELECTORS = ("raw", "normalised", "sum", "last")


class Phase(BaseModel):
    """One stretch of training; what is left out is as in `training`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    frozen: bool = Field(False, description="Hold the trunk fixed: only the heads learn.")
    epochs: int | None = Field(None, ge=1, description="Length in epochs.")
    steps: int | None = Field(None, ge=1, description="Length in steps, instead of epochs.")
    lr: float | None = Field(None, gt=0, description="Peak learning rate.")
    batch: int | None = Field(None, ge=1, description="Examples of a task per batch.")
    schedule: Schedule | None = Field(None, description="Course of the learning rate.")
    warmup: float | None = Field(None, ge=0, le=1, description="Share of the phase spent warming up.")

    def over(self, training: Training) -> Training:
        """`training` as it holds during this phase."""
        raise NotImplementedError


class Training(BaseModel):
    """How the weights are learned."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: int = Field(3, ge=1, description="Epochs; how long one is depends on `sampling`.")
    steps: int | None = Field(None, ge=1, description="Steps of the whole run; overrides epochs.")
    steps_per_epoch: int | None = Field(
        None, ge=1, description="Steps of an epoch, instead of what `sampling` makes of the data."
    )
    batch: int = Field(32, ge=1, description="Examples of a task per batch.")
    lr: float = Field(5e-5, gt=0, description="Peak learning rate.")
    sampling: str = Field(
        "each",
        description="Whose turn it is: each, round-robin, proportional, sqrt, power:A, annealed, "
        "temperature:T[,cap:N], method1, method2, method3 or in-turn.",
    )
    combine: str = Field("sum", description="How the tasks' gradients become one: sum, pcgrad, ...")
    weighting: str = Field(
        "static", description="How the tasks' losses are weighted: static, uncertainty, dwa, ..."
    )
    weights: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, description="Loss weight per task; overrides the task's own `weight`."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of every random choice.")
    warmup: float = Field(0.1, ge=0, le=1, description="Share of all steps in which the rate rises.")
    schedule: Schedule = Field("linear", description="Course of the learning rate after warm-up.")
    decay: float = Field(0.01, ge=0, description="Weight decay; norms and biases are spared.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout inside the trunk.")
    clip: float | None = Field(1.0, gt=0, description="Largest gradient norm; null for no limit.")
    accumulate: int = Field(1, ge=1, description="Batches whose gradients are added up per step.")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="Factor of the learning rate from each layer to the one below."
    )
    head_lr: float = Field(
        1.0, gt=0, description="Factor of the learning rate for heads and late layers."
    )
    adapter_lr: float = Field(1.0, gt=0, description="Factor of the learning rate for adapters.")
    select: str = Field(
        "normalised",
        description="The dev score that picks the model kept: raw, normalised, sum, last or a task.",
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after this many evaluations without a better one."
    )
    ema: float | None = Field(
        None, gt=0, lt=1, description="Keep a moving average of the weights with this factor."
    )
    length_window: int = Field(
        50, ge=0, description="Batches within which examples are sorted by length; 0 for not at all."
    )
    phases: tuple[Phase, ...] = Field(
        (), description="Stretches of training one after the other, for example frozen, then tuned."
    )
    log_every: int = Field(20, ge=1, description="Steps between two lines of metrics.jsonl.")
    cosines_every: int = Field(
        0, ge=0, description="Steps between two logs of the gradients' cosines; 0 for never."
    )
    evaluate_every: Literal["epoch"] | Annotated[int, Field(ge=1)] = Field(
        "epoch", description="When the dev rows are judged: every epoch, or every so many steps."
    )


class Recipe(BaseModel):
    """The whole experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    encoder: str = Field(
        "minilm", min_length=1, description="The pretrained encoder: a folder, a hub id, or minilm."
    )
    plan: str | dict[str, Any] = Field(
        "full", description="What the tasks share: the plan's one-line text, or its table."
    )
    data: str = Field(
        ".", min_length=1, description="The folder that relative paths of the tasks start from."
    )
    tasks: dict[str, Task] = Field(min_length=1, description="The tasks, each under its name.")
    rows: Literal["error", "skip"] = Field(
        "error", description="What a bad row does: stop with an error, or be skipped and counted."
    )
    max_length: int = Field(512, ge=8, description="Tokens of a text or pair beyond which it is cut.")
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$",
        description="Where to compute: auto, cpu, cuda, cuda:N or mps.",
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="Precision of the trunk.")
    threads: int | None = Field(None, ge=1, description="CPU threads; null leaves torch's choice.")
    training: Training = Field(default_factory=Training, description="How the weights are learned.")

    _folder: Path | None = PrivateAttr(None)

    @classmethod
    def read(
        cls,
        source: str | PathLike[str] | Mapping[str, Any] | Recipe,
        overrides: Sequence[str] = (),
    ) -> Recipe:
        """A recipe from a file, a dict or another recipe, with `a.b=c` overrides applied."""
        raise NotImplementedError

    @property
    def root(self) -> Path:
        """The data folder, found."""
        raise NotImplementedError

    def task_weights(self) -> dict[str, float]:
        """Loss weight of each task."""
        return {name: self.training.weights.get(name, t.weight) for name, t in self.tasks.items()}

    def dump(self) -> str:
        """The recipe as YAML, every key present."""
        raise NotImplementedError


def schema() -> dict[str, Any]:
    """JSON schema of a recipe."""
    return Recipe.model_json_schema()
