"""Further pretraining: a recipe's `pretraining`, which texts are read and how long."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bough.recipe.training import Moment, Schedule, Training
from bough.recipe.validation import one_or_several


class Pretraining(BaseModel):
    """Masked language modelling; what is not said here is as in `training`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    texts: Literal["first", "both", "none"] = Field(
        "first",
        description="Which of the tasks' training texts are read: of a pair the first, both, or "
        "none.",
    )
    files: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(one_or_several)
    ] = Field((), description="Text files that are read too, a text in each line.")
    start: str | None = Field(
        None,
        min_length=1,
        description="A finished run with one trunk for all tasks, whose trunk is taken instead of "
        "the encoder's.",
    )
    held_out: float = Field(
        0.05, gt=0, lt=1, description="Share of the texts that is kept to judge by."
    )
    mask: float = Field(0.15, gt=0, lt=1, description="Share of the tokens that is to be guessed.")
    whole_words: bool = Field(False, description="Mask words as a whole, not single tokens.")
    epochs: int = Field(1, ge=1, description="Passes over the texts.")
    steps: int | None = Field(None, ge=1, description="Steps, instead of epochs.")
    batch: int = Field(32, ge=1, description="Texts per step.")
    lr: float = Field(5e-5, gt=0, description="Peak learning rate.")
    schedule: Schedule = Field("linear", description="Course of the learning rate after warm-up.")
    warmup: float = Field(
        0.1, ge=0, le=1, description="Share of all steps in which the rate rises."
    )
    evaluate_every: Moment = Field(
        "epoch",
        description="When the texts held out are judged: every epoch (every quarter of what has "
        "not two), or so many steps.",
    )

    def over(self, training: Training) -> Training:
        """`training` as it holds for these texts: those settings that are not of several tasks."""
        kept = {
            name: getattr(training, name)
            for name in (
                "seed", "decay", "dropout", "clip", "accumulate", "layer_decay", "length_window",
                "save_every", "log_every",
            )
        }  # fmt: skip
        own = ("epochs", "steps", "batch", "lr", "schedule", "warmup", "evaluate_every")
        return Training(**kept, **{name: getattr(self, name) for name in own})
