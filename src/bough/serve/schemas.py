"""Requests and answers as types, made for the model that is served.

So the OpenAPI schema says exactly what is accepted: which tasks there are, and which of them judge
one text and which a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, assert_never

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
    with_config,
)
from typing_extensions import TypedDict  # pydantic reads typing's only from 3.12 on

from bough.errors import nearest
from bough.inference.model import Text
from bough.recipe.tasks import Task
from bough.serve.settings import Limits

SHOWN = 60  # characters of a wrong value that an error repeats
# A character that Python does not strip as blank; \s would mean others to other languages.
INK = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
Share = Annotated[float, Field(ge=0, le=1.0001)]  # the last digit of a float
CUT = "The text is longer than the model reads; only its beginning was judged."

OFFSETS = "Characters (Unicode code points) from the text's begin; `end` is behind the last."
LEFT_OUT = "Labels or spans of a smaller probability than `abstain` were left out."
ABSTAINED = "The label's probability is below `abstain`, so that there is no label."


class PredictRequest(BaseModel, extra="forbid"):
    """Texts, and pairs as lists of two, with the tasks that are to answer them."""

    texts: list[Text]
    tasks: list[str] | None = None
    abstain: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            strict=True,
            description="Labels and spans of a smaller probability are left out.",
        ),
    ] = 0

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, body: Any) -> Any:
        """At the first wrong key: an error for each of a large body's would cost seconds."""
        for key in body if isinstance(body, dict) else ():
            if key not in cls.model_fields:
                shown, known = key[:SHOWN], tuple(cls.model_fields)
                hint = nearest(shown, known)
                raise ValueError(f"no key {shown!r} in a request ({', '.join(known)}){hint}")
        return body


def request_type(tasks: Mapping[str, Task], limits: Limits) -> type[PredictRequest]:
    """What a client may send: of these tasks, within these limits."""
    # That a text is not blank is for the model to find; the schema only tells it.
    text = Annotated[str, Field(max_length=limits.characters, json_schema_extra={"pattern": INK})]
    text_or_pair = Annotated[
        Annotated[text, Tag("text")] | Annotated[tuple[text, text], Tag("pair")],
        Discriminator(lambda value: "pair" if isinstance(value, list) else "text"),
    ]
    name: Any = Literal[tuple(tasks)]
    return create_model(
        "PredictRequest",
        __base__=PredictRequest,
        __cls_kwargs__={"json_schema_extra": {"anyOf": _fitting(tasks)}},
        texts=(list[text_or_pair], Field(min_length=1, max_length=limits.texts, fail_fast=True)),
        tasks=(
            Annotated[list[name], Field(min_length=1, fail_fast=True)] | None,
            Field(None, description="The tasks that are to answer; all that fit, if left out."),
        ),
    )


def _fitting(tasks: Mapping[str, Task]) -> list[dict[str, Any]]:
    """JSON schemas of the requests in which every chosen task fits every text."""
    schemas: list[dict[str, Any]] = []
    for title, form, paired in (("texts", "string", False), ("pairs of texts", "array", True)):
        if names := [name for name, task in tasks.items() if task.paired == paired]:
            chosen = {"texts": {"items": {"type": form}}, "tasks": {"items": {"enum": names}}}
            schemas.append({"title": title, "properties": chosen})
    mixed = {"title": "texts and pairs", "properties": {"tasks": {"type": "null"}}}
    return [*schemas, mixed] if len(schemas) == 2 else schemas


def response_type(tasks: Mapping[str, Task]) -> Any:
    """The answers, in the order of the texts."""
    fields = {name: _answer_type(name, task) for name, task in tasks.items()}
    answers: Any = TypedDict("Answers", fields, total=False)  # type: ignore[misc]
    with_config(extra="forbid", json_schema_extra={"minProperties": 1})(answers)
    return create_model("PredictResponse", answers=(list[answers], Field(min_length=1)))


def _answer_type(name: str, task: Task) -> Any:
    fields: dict[str, Any]
    label: Any = Literal[task.labels or ("",)]
    every = Field(min_length=len(task.labels or ()))  # as there are no others
    match task.kind:
        case "multilabel":
            fields = {
                "labels": Annotated[list[label], Field(description="Those that hold.")],
                "probabilities": Annotated[dict[label, Share], every],
                "abstained": NotRequired[Annotated[bool, Field(description=LEFT_OUT)]],
            }
        case "classify" | "ordinal":
            fields = {
                "label": NotRequired[label],
                "score": Share,
                "probabilities": Annotated[dict[label, Share], every],
                "abstained": NotRequired[Annotated[bool, Field(description=ABSTAINED)]],
            }
        case "regress":
            ends = "{:g} to {:g}".format(*task.range) if task.range else "any number to any"
            fields = {"value": Annotated[float, Field(description=f"From {ends}.")]}
        case "tag":
            span: Any = TypedDict(  # type: ignore[misc]
                f"{name} span",
                {
                    "start": Annotated[int, Field(ge=0, description=OFFSETS)],
                    "end": Annotated[int, Field(ge=1, description=OFFSETS)],
                    "label": label,
                    "score": Share,
                    "text": str,
                },
            )
            fields = {
                "spans": list[with_config(extra="forbid")(span)],  # type: ignore[misc]
                "abstained": NotRequired[Annotated[bool, Field(description=LEFT_OUT)]],
            }
        case _:
            assert_never(task.kind)
    fields["cut"] = NotRequired[Annotated[bool, Field(description=CUT)]]
    answer: Any = TypedDict(f"{name} answer", fields)  # type: ignore[misc]
    return with_config(extra="forbid")(answer)


class Problem(BaseModel):
    """Why a request was not answered."""

    error: Annotated[str, Field(description="One sentence.")]


class Status(TypedDict):
    status: Literal["alive", "ready"]
