"""A task: what is to be learned from which columns, and how it is read out and judged.

A task has no name of its own: the recipe's `tasks` gives it one. Its classes may be left open;
`checked_rows.load` finds them in the data and returns the task with `labels` filled in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, assert_never

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from bough.errors import UserError, listed, nearest
from bough.recipe.kinds import KINDS, OWN_KEYS, Kind, KindRules, kinds_with
from bough.recipe.labels import Classes, ClassWeights, NamedClasses
from bough.recipe.sources import Limit, Source
from bough.recipe.teacher import Teachers, Texts
from bough.recipe.validation import Consistent, one_or_several
from bough.spans.schemes import Scheme, SchemeName

Pair = Literal["auto", "joint", "twin"]
PAIRS = {"cross-encoder": "joint", "bi-encoder": "twin"}  # what others call them
Feature = Literal["concat", "sum", "product", "difference", "cosine"]
Pooling = Literal["auto", "pooler", "cls", "mean", "words"]
Head = Literal["linear", "mlp", "cosine", "cosine-linear", "cosine-sigmoid"]
Loss = Literal["auto", "ce", "bce", "mse", "mae", "huber", "pearson", "ordinal"]
Metric = Literal[
    "auto", "accuracy", "f1", "f1-micro", "f1-weighted", "mcc", "auroc", "kappa", "pearson",
    "spearman", "rmse", "entity_f1", "precision", "recall",
]  # fmt: skip
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
FEATURES: tuple[Feature, ...] = ("concat", "difference", "product", "cosine")
# The default before: runs of that time have it written down for every task, pairs or not.
FORMER_FEATURES: tuple[Feature, ...] = ("concat", "difference", "product")


def on_one_table(tasks: Mapping[str, Task]) -> set[str]:
    """Tasks on a table in which others have labels, too: there an empty cell is no fault."""
    return {
        name
        for name, task in tasks.items()
        for other in tasks.values()
        if task.label_columns != other.label_columns
        and any(_same_table(task, other, split) for split in SPLITS)
    }


def _same_table(task: Task, other: Task, split: Split) -> bool:
    source = getattr(task, split)
    return source is not None and bool(source == getattr(other, split))


def _text(value: object) -> object:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value):
        if len(value) == 1:
            return value[0]
        if len(value) == 2 and value[0] != value[1]:
            return tuple(value)
    raise ValueError("expected one column name, or a list of two different ones for a pair")


def _label(value: object) -> object:
    if isinstance(value, str) and value:
        return value
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if all(isinstance(name, str) and name for name in names) and 2 <= len(names) == len(set(names)):
        return names
    raise ValueError("expected a column's name, or a list of different ones, one for each label")


def _ends(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value
    raise ValueError("expected the lowest and the highest label, for example [0, 5]")


def _text_where_needed(schema: dict[str, Any]) -> None:
    """A tag task may leave `text` out; JSON schema has to be told."""
    schema["required"] = [key for key in schema["required"] if key != "text"]
    schema["if"] = {"properties": {"kind": {"const": "tag"}}}
    schema["else"] = {"required": ["text"]}


class Task(Consistent):
    """One thing to learn: its columns, its head, its loss and its metric."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, json_schema_extra=_text_where_needed
    )

    kind: Kind = Field(
        description="What the answer is: "
        + ", or ".join(f"{rules.answer} ({kind})" for kind, rules in KINDS.items())
        + "."
    )
    text: Annotated[str | tuple[str, str], BeforeValidator(_text)] = Field(
        description="The column that holds the text, or a pair of columns for a pair of texts; "
        "left out in a tag task it is `text`."
    )
    label: Annotated[str | tuple[str, ...], BeforeValidator(_label)] = Field(
        "label",
        description="The column that holds the label; in a tag task, left out, it is `spans`; of a "
        "multilabel task also a list of columns with 0 or 1, one for each label.",
    )
    train: Source | None = Field(
        None, description="Rows to learn from: a file, a hub set, or rows written out."
    )
    dev: Source | None = Field(None, description="Rows to choose the best model by.")
    test: Source | None = Field(None, description="Rows for the end; they need no labels.")
    limit: Limit = Field(
        default_factory=Limit,
        description="Most rows of each split, drawn once and for all; null takes all of them.",
    )
    labels: NamedClasses | None = Field(
        None,
        description="The classes, in order; found in the train rows if left out. Or with the names "
        "that answers have: {0: negative, 1: positive}.",
    )
    label_values: Classes | None = Field(
        None, description="What the files write for these classes; `labels` with names sets it."
    )
    separator: str = Field(
        ",",
        min_length=1,
        description="What stands between the labels in a multilabel task's cell; a JSON list is "
        "read as well.",
    )
    range: Annotated[tuple[float, float], BeforeValidator(_ends)] | None = Field(
        None,
        description="Lowest and highest label of a regress task, which its answers keep to; left "
        "out, any number may be answered.",
    )
    scale: Annotated[tuple[float, float], BeforeValidator(_ends)] | None = Field(
        None,
        description="Two numbers that a regress task without a range is learned between: found in "
        "the train rows, two standard deviations below and above their mean.",
    )
    pair: Annotated[Pair, BeforeValidator(lambda name: PAIRS.get(str(name), name))] = Field(
        "auto",
        description="Read a pair as one sequence (joint, or cross-encoder) or as two apart (twin, "
        "or bi-encoder); auto is apart where there are few rows and the encoder was made to "
        "compare sentences.",
    )
    features: Annotated[tuple[Feature, ...], BeforeValidator(one_or_several)] = Field(
        FEATURES,
        min_length=1,
        description="What a twin pair's head sees of the two vectors; difference is absolute.",
    )
    pooling: Pooling = Field(
        "auto",
        description="How the trunk's states become one vector per text; auto is what the encoder "
        "was made for. A tag task reads a vector per word.",
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
        "auto",
        description="The loss; auto is bce for two classes and for labels, ce for more classes, "
        "ordinal for those in an order, mse for numbers.",
    )
    scheme: SchemeName = Field(
        "bio",
        description="The tags that a tag task's head tells apart: begin and inside (bio), or end "
        "and single word, too (bioes); files may have any.",
    )
    smoothing: float = Field(
        0.0, ge=0, lt=1, description="Label smoothing of a classify or tag task."
    )
    class_weights: ClassWeights | None = Field(
        None, description="Weight of each class in the loss: balanced, or {class: weight}."
    )
    temperature: float | None = Field(
        None,
        gt=0,
        description="Softens the probabilities of classes or tags (above 1) or sharpens them; left "
        "out, it is fitted to the dev rows at the end of training. No answer changes by it.",
    )
    metric: Metric = Field(
        "auto",
        description="The score that counts; auto is accuracy of classes, kappa of those in an "
        "order, f1-micro of labels, pearson of numbers, entity_f1 of spans. rmse has a minus, so "
        "that more is better.",
    )
    weight: float = Field(1.0, ge=0, description="Weight of this task's loss.")
    teacher: Teachers = Field(
        (),
        description="Who it learns from beside its labels, one or several: a run or a model, a "
        "recipe that is trained first, or a file of soft answers.",
    )
    unlabelled: Texts = Field(
        (),
        description="More texts for the teacher to answer: files without labels, or the names of "
        "tasks whose train rows are taken.",
    )

    @model_validator(mode="before")
    @classmethod
    def _take_names_apart(cls, settings: Any) -> Any:
        """`labels: {0: negative}` is the class `negative`, which files write as 0."""
        if not isinstance(settings, Mapping):
            return settings
        if settings.get("kind") == "tag":  # as CoNLL files have them
            settings = {"text": "text", "label": "spans", **settings}
        labels = settings.get("labels")
        if not isinstance(labels, Mapping):
            return settings
        return {**settings, "labels": [*labels.values()], "label_values": [*labels]}

    @property
    def columns(self) -> tuple[str, ...]:
        """The text columns, one or two."""
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The label's column, or those of several labels."""
        return (self.label,) if isinstance(self.label, str) else self.label

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
            raise RuntimeError("the classes are not known yet: checked_rows.load finds them")
        return len(self.labels)

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers that a regress task is learned between; asked once they are known."""
        ends = self.range or self.scale
        if ends is None:
            raise RuntimeError("the scale is not known yet: checked_rows.load finds it")
        return ends

    @property
    def rules(self) -> KindRules:
        """What a recipe may say about tasks of its kind."""
        return KINDS[self.kind]

    @property
    def settled(self) -> bool:
        """Whether all is known that its rows may have to say about it."""
        return any(getattr(self, key) is not None for key in self.rules.found)

    @property
    def loss_name(self) -> str:
        """The loss, with auto resolved."""
        if self.loss != "auto":
            return self.loss
        match self.kind:
            case "classify":
                return "bce" if self.classes == 2 else "ce"
            case "regress":
                return "mse"
            case "ordinal":
                return "ordinal"
            case "multilabel":
                return "bce"
            case "tag":
                return "ce"
            case _:
                assert_never(self.kind)

    @property
    def metric_name(self) -> str:
        """The metric, with auto resolved."""
        return self.rules.metrics[0] if self.metric == "auto" else self.metric

    @property
    def tags(self) -> Scheme:
        """What a tag task's head tells apart; asked once the labels are known."""
        return Scheme(self.scheme, self.labels or ())

    @property
    def outputs(self) -> int:
        """How many numbers the head gives; a tag task's for each word."""
        if self.kind == "multilabel":
            return self.classes
        if self.kind == "tag":
            return len(self.tags)
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
        for key, problem in task._key_problems():
            raise UserError(f"{key}: {problem}")
        return task

    def _problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for key, problem in self._key_problems():
            yield (key,), problem

    def _key_problems(self) -> Iterator[tuple[str, str]]:
        for column in self.label_columns:
            if column in self.columns:
                yield "label", f"column {column!r} is both text and label; name two columns"
        if not isinstance(self.label, str) and self.kind != "multilabel":
            reason = f"several columns are the labels of a multilabel task, not of {self.kind}"
            yield "label", f"{reason}; name one, or set `kind: multilabel`"
        metrics = (*self.rules.metrics, *self.rules.more_metrics)
        for key, fitting in (("loss", self.rules.losses), ("metric", metrics)):
            value, known = getattr(self, key), ("auto", *fitting)
            if value not in known:
                yield key, f"{value!r} does not fit kind {self.kind}; take {', '.join(known)}"
        for key in OWN_KEYS:
            if key not in self.rules.keys and getattr(self, key) != Task.model_fields[key].default:
                others = kinds_with(key)
                so = f"this is for {listed(others)} tasks"
                yield key, f"{so}; leave it out, or set `kind: {others[0]}`"
        yield from self._tag_problems()
        yield from self._range_problems()
        yield from self._class_problems()
        if self.head.startswith("cosine") and not self.twin:
            reason = f"{self.head!r} compares two vectors; give `text` two columns and set"
            yield "head", f"{reason} `pair: twin`, or take head linear or mlp"
        if self.unlabelled and not self.teacher:
            yield "unlabelled", "nobody answers these texts; give the task a `teacher`"
        if self.features not in (FEATURES, FORMER_FEATURES) and not self.twin:
            yield "features", "this is for pairs with `pair: twin`; set that, or leave it out"
        if len(set(self.features)) < len(self.features):
            yield "features", f"one is named twice in {', '.join(self.features)}"

    def _tag_problems(self) -> Iterator[tuple[str, str]]:
        if self.kind != "tag":
            if self.pooling == "words":
                yield "pooling", "'words' is for tag tasks; take auto, pooler, cls or mean"
            return
        if self.paired:
            yield "text", "a tag task marks one text; name one column"
        if self.teacher:
            yield "teacher", "a tag task answers word by word, which no teacher does; leave it out"
        if self.pooling not in ("auto", "words"):
            yield "pooling", f"{self.pooling!r} makes one vector of a text; a tag task reads words"

    def _range_problems(self) -> Iterator[tuple[str, str]]:
        for key, ends in (("range", self.range), ("scale", self.scale)):
            if ends is not None and not ends[0] < ends[1]:
                low, high = ends
                reason = f"[{low:g}, {high:g}] is empty"
                yield key, f"{reason}; give the lowest label, then the highest"

    def _class_problems(self) -> Iterator[tuple[str, str]]:
        labels, values = self.labels, self.label_values
        if values is not None and len(set(values)) != len(labels or ()):
            yield "label_values", "each class in `labels` needs one value of its own, in order"
        if labels is None:
            return
        repeated = [name for name, times in Counter(labels).items() if times > 1]
        if repeated:
            yield "labels", f"{repeated[0]!r} is there twice; every class needs its own name"
        if "" in labels:
            yield "labels", "one name is empty; every class needs one"
        if len(labels) < 2 and self.kind != "tag":
            yield "labels", f"a {self.kind} task needs two or more classes, not {len(labels)}"
        if self.kind == "classify" and self.loss in ("bce", "mse") and len(labels) != 2:
            reason = f"{self.loss!r} is for two classes and here are {len(labels)}"
            yield "loss", f"{reason}; take ce or ordinal"
        if self.head.startswith("cosine") and self.outputs != 1:
            reason = (
                f"{self.head!r} gives one number, which cannot tell {len(labels)} classes apart"
            )
            yield "head", f"{reason} by loss {self.loss_name!r}; take head linear or mlp"
        for name in self.class_weights if isinstance(self.class_weights, dict) else ():
            if name not in labels:
                reason = f"{name!r} is no class of this task ({listed(labels)})"
                yield "class_weights", reason + nearest(name, labels)
