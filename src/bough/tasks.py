"""Task: what is to be learned from which columns, and how it is read out and judged.

A task has no name of its own: the recipe's `tasks` gives it one. Its classes may be left open; rows
finds them in the data and returns the task with `labels` filled in.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from bough.mistakes import Mistake, nearest

Kind = Literal["classify", "regress"]
Pair = Literal["joint", "twin"]
Feature = Literal["concat", "sum", "product", "difference", "cosine"]
Pooling = Literal["pooler", "cls", "mean"]
Head = Literal["linear", "mlp", "cosine", "cosine-linear", "cosine-sigmoid"]
Loss = Literal["auto", "ce", "bce", "mse", "mae", "huber", "ordinal"]
Metric = Literal["auto", "accuracy", "f1", "mcc", "pearson", "spearman"]
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
FEATURES: tuple[Feature, ...] = ("concat", "difference", "product")
SIGNED: tuple[Metric, ...] = ("pearson", "spearman", "mcc")  # these run from -1 to 1

_LOSSES: dict[Kind, tuple[str, ...]] = {
    "classify": ("auto", "ce", "bce", "ordinal", "mse"),
    "regress": ("auto", "mse", "mae", "huber"),
}
_METRICS: dict[Kind, tuple[str, ...]] = {
    "classify": ("auto", "accuracy", "f1", "mcc"),
    "regress": ("auto", "pearson", "spearman"),
}
_WHOLE = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.0+)?")


def class_name(value: object) -> str:
    """The class a label stands for: 0, 0.0, "0" and "0.0" are all the class "0"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return text
    sign, digits = whole.groups()
    return digits if digits == "0" else sign + digits


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct class names: by value when all are numbers, else by alphabet."""
    distinct = set(names)
    try:
        values = {name: float(name) for name in distinct}
    except ValueError:
        return tuple(sorted(distinct))
    if any(math.isnan(value) for value in values.values()):
        return tuple(sorted(distinct))
    return tuple(sorted(distinct, key=lambda name: (values[name], name)))


def _class_names(value: object) -> object:
    return tuple(map(class_name, value)) if isinstance(value, list | tuple) else value


def _class_keys(value: object) -> object:
    return {class_name(k): v for k, v in value.items()} if isinstance(value, Mapping) else value


Classes = Annotated[
    tuple[str, ...],
    BeforeValidator(_class_names),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "boolean"]}}),
]
ClassWeights = Annotated[
    Annotated[Literal["balanced"], Tag("<word>")]
    | Annotated[dict[str, Annotated[float, Field(ge=0)]], Tag("<each>")],
    Discriminator(lambda value: "<each>" if isinstance(value, Mapping) else "<word>"),
    BeforeValidator(_class_keys),
]


class Hub(BaseModel):
    """A set on the Hugging Face hub, or a local folder laid out like one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hub: str = Field(min_length=1, description="The set's id (owner/name) or a local folder.")
    config: str | None = Field(None, description="The configuration, for sets that have several.")
    split: str = Field("train", min_length=1, description="The split: train, validation, ...")
    columns: dict[str, str] = Field(
        default_factory=dict, description="The set's own column names: {our name: its name}."
    )
    labels: Classes | None = Field(
        None, description="Names of the classes 0, 1, ... where the set stores bare numbers."
    )


class Limit(BaseModel):
    """How many rows of each split are used at most; always the same ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: int | None = Field(None, ge=1, description="Most rows to learn from.")
    dev: int | None = Field(None, ge=1, description="Most rows to choose the best model by.")
    test: int | None = Field(None, ge=1, description="Most rows for the end.")


Record = dict[str, Any] | tuple[Any, ...]


def _plain(value: object) -> object:
    """A cell as plain data, so that a recipe that holds it can be written down."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):  # numpy's too
        return float(value)
    if isinstance(value, int):
        if value.bit_length() > 1024:
            raise ValueError("a whole number of more than 1024 bits is neither text nor label")
        return int(value)
    if isinstance(value, bytes | bytearray):
        raise ValueError(f"a cell holds the bytes {shorten(value)}; decode them first")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    # Scalars of numpy and torch know their `item`; dates and the like have at least a name.
    item = getattr(value, "item", None)
    return _plain(item()) if callable(item) and getattr(value, "ndim", 1) == 0 else str(value)


def _source(value: object) -> object:
    """Lay in-memory data out as rows: a list of dicts or tuples, or a dict of columns."""
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping) and "hub" not in value:
        return _from_columns(value)
    if isinstance(value, list | tuple):
        return tuple(_record(number, row) for number, row in enumerate(value, 1))
    return value


def _from_columns(value: Mapping[object, object]) -> tuple[Record, ...]:
    columns: dict[str, list[object]] = {}
    for name, column in value.items():
        if isinstance(column, str | bytes | Mapping) or not isinstance(column, Iterable):
            raise ValueError(
                f"{name!r} is not a list; a mapping is either columns of rows or names a `hub` set"
                + nearest(str(name), Hub.model_fields)
            )
        columns[str(name)] = [_plain(cell) for cell in column]
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"the columns have different lengths ({sizes}); expected equal ones")
    rows = zip(*columns.values(), strict=True)
    return tuple(dict(zip(columns, row, strict=True)) for row in rows)


def _record(number: int, row: object) -> Record:
    if isinstance(row, str):
        return (row,)
    if isinstance(row, Mapping):
        return {str(name): _plain(cell) for name, cell in row.items()}
    if isinstance(row, list | tuple):
        return tuple(map(_plain, row))
    raise ValueError(f"row {number} is {shorten(row)}; expected a dict, a tuple or a text")


def shorten(value: object, most: int = 60) -> str:
    """The value as a message shows it."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of thousands of digits
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= most else text[: most - 3] + "..."


def _source_form(value: object) -> str:
    # The tags are in angle brackets so that no message takes them for a key of the recipe.
    if isinstance(value, str):
        return "<path>"
    return "<hub>" if isinstance(value, Mapping | Hub) else "<rows>"


Source = Annotated[
    Annotated[str, Field(min_length=1), Tag("<path>")]
    | Annotated[Hub, Tag("<hub>")]
    | Annotated[tuple[Record, ...], Tag("<rows>")],
    Discriminator(_source_form),
    BeforeValidator(_source),
]


def _text(value: object) -> object:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value):
        if len(value) == 1:
            return value[0]
        if len(value) == 2 and value[0] != value[1]:
            return tuple(value)
    raise ValueError("expected one column name, or a list of two different ones for a pair")


def _ends(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value
    raise ValueError("expected the lowest and the highest label, for example [0, 5]")


def _features(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Task(BaseModel):
    """One thing to learn: its columns, its head, its loss and its metric."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Kind = Field(
        description="What the answer is: one of two or more classes (classify), or a number in a "
        "range (regress)."
    )
    text: Annotated[str | tuple[str, str], BeforeValidator(_text)] = Field(
        description="The column that holds the text, or a pair of columns for a pair of texts."
    )
    label: str = Field("label", min_length=1, description="The column that holds the label.")
    train: Source | None = Field(
        None, description="Rows to learn from: a file, a hub set, or rows written out."
    )
    dev: Source | None = Field(None, description="Rows to choose the best model by.")
    test: Source | None = Field(None, description="Rows for the end; they need no labels.")
    limit: Limit = Field(
        default_factory=Limit,
        description="Most rows of each split, drawn once and for all; null takes all of them.",
    )
    labels: Classes | None = Field(
        None, description="The classes, in order; found in the train rows if left out."
    )
    range: Annotated[tuple[float, float], BeforeValidator(_ends)] | None = Field(
        None, description="Lowest and highest label of a regress task."
    )
    pair: Pair = Field(
        "joint",
        description="Read a pair as one sequence (joint) or as two apart (twin).",
    )
    features: Annotated[tuple[Feature, ...], BeforeValidator(_features)] = Field(
        FEATURES,
        min_length=1,
        description="What a twin pair's head sees of the two vectors; difference is absolute.",
    )
    pooling: Pooling = Field(
        "pooler", description="How the trunk's states become one vector per text."
    )
    head: Head = Field("linear", description="What turns that vector into an answer.")
    depth: int = Field(3, ge=1, description="Linear layers of an mlp head.")
    width: int = Field(256, ge=1, description="Units in each hidden layer of an mlp head.")
    project: bool = Field(
        False, description="Give the head its own square linear map before the features."
    )
    norm: bool = Field(False, description="Put a LayerNorm on the pooled vector before the head.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout before the head and inside it.")
    reads_as: Literal["logits", "probabilities", "hidden"] = Field(
        "logits", description="What this task takes over of the tasks that the plan feeds to it."
    )
    fusion: Literal["concat", "attention"] = Field(
        "concat", description="How what it takes over joins its own features."
    )
    loss: Loss = Field(
        "auto", description="The loss; auto is bce for two classes, ce for more, mse for numbers."
    )
    smoothing: float = Field(0.0, ge=0, lt=1, description="Label smoothing of a classify task.")
    class_weights: ClassWeights | None = Field(
        None, description="Weight of each class in the loss: balanced, or {class: weight}."
    )
    metric: Metric = Field(
        "auto", description="The score that counts; auto is accuracy, or pearson for numbers."
    )
    weight: float = Field(1.0, ge=0, description="Weight of this task's loss.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The text columns, one or two."""
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def paired(self) -> bool:
        """Whether it judges a pair of texts."""
        return not isinstance(self.text, str)

    @property
    def twin(self) -> bool:
        """Whether its two texts are encoded apart."""
        return self.paired and self.pair == "twin"

    @property
    def classes(self) -> int:
        """How many classes there are; asked once the labels are known."""
        if self.labels is None:
            raise RuntimeError("the classes of this task are not known yet: rows.load finds them")
        return len(self.labels)

    @property
    def loss_name(self) -> str:
        """The loss, with auto resolved."""
        if self.loss != "auto":
            return self.loss
        if self.kind == "regress":
            return "mse"
        return "bce" if self.classes == 2 else "ce"

    @property
    def metric_name(self) -> str:
        """The metric, with auto resolved."""
        if self.metric != "auto":
            return self.metric
        return "accuracy" if self.kind == "classify" else "pearson"

    @property
    def outputs(self) -> int:
        """How many numbers the head gives."""
        match self.loss_name:
            case "ce":
                return self.classes
            case "ordinal":
                return self.classes - 1
            case _:
                return 1

    def with_labels(self, labels: Iterable[str]) -> Task:
        """The same task, its classes known."""
        task = self.model_copy(update={"labels": tuple(labels)})
        for key, problem in task._problems():
            raise Mistake(f"{key}: {problem}")
        return task

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        for key, problem in self._problems():
            raise misfit(problem, key)
        return self

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together: the key to mend, and a sentence."""
        if self.label in self.columns:
            yield "label", f"column {self.label!r} is both text and label; name two columns"
        for key, fitting in (("loss", _LOSSES), ("metric", _METRICS)):
            value, known = getattr(self, key), fitting[self.kind]
            if value not in known:
                yield key, f"{value!r} does not fit kind {self.kind}; take {', '.join(known)}"
        yield from (
            self._classify_problems() if self.kind == "classify" else self._regress_problems()
        )
        if self.head.startswith("cosine") and not self.twin:
            said = (
                f"{self.head!r} compares two vectors; give `text` two columns and set `pair: twin`"
            )
            yield "head", f"{said}, or take head linear or mlp"
        if self.features != FEATURES and not self.twin:
            yield "features", "this is for pairs with `pair: twin`; set that, or leave it out"
        if len(set(self.features)) < len(self.features):
            yield "features", f"one is named twice in {', '.join(self.features)}"

    def _regress_problems(self) -> Iterator[tuple[str, str]]:
        for key, default in (("labels", None), ("class_weights", None), ("smoothing", 0.0)):
            if getattr(self, key) != default:
                yield key, "this is for classify tasks; leave it out, or set `kind: classify`"
        if self.range is not None and not self.range[0] < self.range[1]:
            low, high = self.range
            yield "range", f"[{low:g}, {high:g}] is empty; give the lowest label, then the highest"

    def _classify_problems(self) -> Iterator[tuple[str, str]]:
        if self.range is not None:
            yield "range", "this is for regress tasks; leave it out, or set `kind: regress`"
        labels = self.labels
        if labels is None:
            return
        repeated = [name for name, times in Counter(labels).items() if times > 1]
        if repeated:
            yield "labels", f"{repeated[0]!r} is there twice; every class needs its own name"
        if "" in labels:
            yield "labels", "one name is empty; every class needs one"
        if len(labels) < 2:
            yield "labels", f"a classify task needs two or more classes, not {len(labels)}"
        if self.loss in ("bce", "mse") and len(labels) != 2:
            said = f"{self.loss!r} is for two classes and here are {len(labels)}"
            yield "loss", f"{said}; take ce or ordinal"
        if self.head.startswith("cosine") and self.outputs != 1:
            said = f"{self.head!r} gives one number, which cannot tell {len(labels)} classes apart"
            yield "head", f"{said} by loss {self.loss_name!r}; take head linear or mlp"
        for name in self.class_weights if isinstance(self.class_weights, dict) else ():
            if name not in labels:
                said = f"{name!r} is no class of this task ({listed(labels)})"
                yield "class_weights", said + nearest(name, labels)


def misfit(sentence: str, *at: str | int) -> PydanticCustomError:
    """What a validator raises about settings that do not go together, and the key to mend."""
    # The sentence is passed as a value, because braces in it would be taken for places to fill.
    return PydanticCustomError("misfit", "{sentence}", {"sentence": sentence, "at": at})


def listed(names: Sequence[str], most: int = 10) -> str:
    """Names in a sentence, the first of many."""
    shown = ", ".join(name if len(name) <= 40 else name[:37] + "..." for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
