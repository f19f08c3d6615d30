"""Who a task learns from beside its labels: models, files of answers, recipes trained first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from bough.recipe.labels import class_name
from bough.recipe.validation import Consistent, one_or_several

# What a bare name is, by its ending; all else is a model.
ENDINGS = {".yaml": "recipe", ".yml": "recipe"} | dict.fromkeys(
    (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet"), "answers"
)
FORMS = ("model", "recipe", "answers")


def _renamed(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {class_name(theirs): class_name(ours) for theirs, ours in value.items()}


class Teacher(Consistent):
    """One teacher: where its answers come from, and how they are read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str | None = Field(
        None,
        min_length=1,
        description="A run, a model's folder or hub id, or a folder of a sequence classifier of "
        "transformers.",
    )
    recipe: str | None = Field(
        None,
        min_length=1,
        description="A recipe that is trained first, kept under runs/teachers, and not trained "
        "again.",
    )
    answers: str | None = Field(
        None,
        min_length=1,
        description="A file of soft answers: the texts, and a column p(CLASS) for each class, or "
        "`value`.",
    )
    task: str | None = Field(
        None, description="What this task is called there, if it has another name."
    )
    labels: Annotated[dict[str, str] | None, BeforeValidator(_renamed)] = Field(
        None, description="The teacher's classes, where they are called otherwise: {theirs: ours}."
    )
    range: tuple[float, float] | None = Field(
        None, description="Lowest and highest number of the teacher, if another than the task's."
    )

    @property
    def source(self) -> str:
        """Where its answers come from."""
        return self.model or self.recipe or self.answers or ""

    @property
    def form(self) -> str:
        """The key that says where."""
        return next(form for form in FORMS if getattr(self, form))

    def _problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        given = [form for form in FORMS if getattr(self, form)]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            yield (), f"a teacher is one of {', '.join(FORMS)}; here is {found}"
        if self.range is not None and not self.range[0] < self.range[1]:
            yield ("range",), "it is empty; give the lowest number, then the highest"


def _teachers(value: object) -> object:
    """One or several, by name or with their settings."""
    several = value if isinstance(value, list | tuple) else (value,)
    return tuple(
        {ENDINGS.get(PurePath(each).suffix.lower(), "model"): each}
        if isinstance(each, str)
        else each
        for each in several
    )


Teachers = Annotated[tuple[Teacher, ...], BeforeValidator(_teachers)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(one_or_several)]
