"""How weights are learned: a recipe's `training`, and the phases that it may be cut into."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bough.recipe.validation import misfit

Schedule = Literal["constant", "linear", "cosine", "onecycle"]
SELECTORS = ("auto", "raw", "normalised", "sum", "last")


def _moment(value: object) -> object:
    if value == "epoch" or (str(value).isdecimal() and int(str(value)) >= 1):
        return value
    raise ValueError("expected epoch, or a number of steps of at least 1")


Moment = Annotated[Literal["epoch"] | int, BeforeValidator(_moment)]
"""When something is done: at the end of every epoch, or every so many steps."""


class Phase(BaseModel):
    """One stretch of training; what is left out is as in `training`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    frozen: bool = Field(False, description="Hold the trunk fixed: only the heads learn.")
    tasks: tuple[str, ...] | None = Field(
        None, min_length=1, description="The tasks that learn in it; left out, all of them."
    )
    epochs: int | None = Field(None, ge=1, description="Length in epochs.")
    steps: int | None = Field(None, ge=1, description="Length in steps, instead of epochs.")
    lr: float | None = Field(None, gt=0, description="Peak learning rate.")
    batch: int | None = Field(None, ge=1, description="Examples of a task per batch.")
    schedule: Schedule | None = Field(None, description="Course of the learning rate.")
    warmup: float | None = Field(
        None, ge=0, le=1, description="Share of the phase in which the rate rises."
    )

    def over(self, training: Training) -> Training:
        """`training` as it holds during this phase."""
        given = self.model_dump(exclude={"frozen", "tasks"}, exclude_none=True)
        return training.model_copy(update={"steps": None, "phases": (), **given})

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise misfit("a phase needs its length: give either epochs or steps")
        return self


class Distil(BaseModel):
    """What a teacher's answers count beside the labels (https://arxiv.org/abs/1503.02531)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weight: float = Field(
        1.0, ge=0, le=1, description="Share of the teacher in the loss; the label has the rest."
    )
    temperature: float = Field(
        1.0, gt=0, description="Softens the answers of teacher and student alike (above 1)."
    )
    anneal: bool = Field(
        True, description="Let the teacher's share fall to 0 over the run, in equal steps."
    )


class Smart(BaseModel):
    """Answers that hardly change when the embeddings do (https://arxiv.org/abs/1911.03437)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weight: float = Field(1.0, gt=0, description="Of what the answers change by, in the loss.")
    radius: float = Field(
        0.01, gt=0, description="How far each number of an embedding is moved at most."
    )


class Training(BaseModel):
    """The course of training: how long, how fast, whose turn, whose gradient."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: int | None = Field(
        None, ge=1, description="Epochs, as `sampling` has them; left out: more, the fewer rows."
    )
    steps: int | None = Field(None, ge=1, description="Steps of the whole run; overrides epochs.")
    tokens: int | None = Field(
        None, ge=1, description="Tokens of the whole run, about; overrides epochs."
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="Minutes of the whole run's steps by the clock; overrides epochs. The only "
        "length with which a run does not come out the same again.",
    )
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
    warmup: float = Field(
        0.1, ge=0, le=1, description="Share of all steps in which the rate rises."
    )
    schedule: Schedule = Field("linear", description="Course of the learning rate after warm-up.")
    decay: float = Field(0.01, ge=0, description="Weight decay; norms and biases are spared.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout inside the trunk.")
    clip: float | None = Field(1.0, gt=0, description="Largest gradient norm; null for no limit.")
    accumulate: int = Field(1, ge=1, description="Batches whose gradients are added up per step.")
    heads: Literal["auto", "fitted", "fresh"] = Field(
        "auto", description="How heads begin: fitted to the untouched encoder, or fresh."
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="Factor of the learning rate from each layer to the one below."
    )
    head_lr: float = Field(
        1.0, gt=0, description="Factor of the learning rate for heads, late layers and the pooler."
    )
    adapter_lr: float = Field(1.0, gt=0, description="Factor of the learning rate for adapters.")
    select: str = Field(
        "auto",
        description="The dev score that picks the model: raw, normalised, sum, last, a task, or "
        "auto: normalised, with a likelihood in place of the score where dev rows are few.",
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after this many evaluations without a better one."
    )
    evaluate_rows: int | None = Field(
        None,
        ge=1,
        description="Most dev rows per task to judge by while training; the end takes all.",
    )
    save_every: float = Field(
        60.0,
        ge=0,
        description="Seconds between two checkpoints; evaluations write one too.",
    )
    keep_states: bool = Field(
        True, description="Compute the states of frozen parts once per text and keep them on disk."
    )
    ema: float | None = Field(
        None, gt=0, lt=1, description="Keep a moving average of the weights with this factor."
    )
    swa: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Keep the mean of the weights over this last share of the run's steps.",
    )
    r_drop: float = Field(
        0.0,
        ge=0,
        description="Pass each batch twice, and add this much of what the answers differ by under "
        "other dropout.",
    )
    smart: Smart | None = Field(
        None, description="Add what answers change by under small moves of the embeddings."
    )
    length_window: int = Field(
        50, ge=0, description="Batches within which examples are sorted by length; 0 for none."
    )
    distil: Distil = Field(
        default_factory=Distil, description="How tasks with a `teacher` learn from it."
    )
    phases: tuple[Phase, ...] = Field(
        (),
        description="Stretches of training one after the other, for example frozen, then tuned; "
        "each has its own length, and `epochs` does not count.",
    )
    log_every: int = Field(20, ge=1, description="Steps between two lines of metrics.jsonl.")
    cosines_every: int = Field(
        0, ge=0, description="Steps between two logs of the gradients' cosines; 0 for never."
    )
    evaluate_every: Moment = Field(
        "epoch",
        description="When the dev rows are judged: every epoch (every quarter of a run that has "
        "not two), or every so many steps.",
    )
