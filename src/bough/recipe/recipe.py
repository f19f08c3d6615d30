"""A recipe: a whole experiment as one validated model, from a file, a dict or another recipe.

Whatever is wrong with it is said in one sentence: the key, the value, what was expected, and the
line of the file or the `--set` that it came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from bough.errors import UserError, listed, nearest
from bough.recipe import methods, yaml
from bough.recipe.raw_settings import RawSettings, escaped, mapped, unresolved
from bough.recipe.sources import Hub, Limit
from bough.recipe.tasks import SPLITS, Task
from bough.recipe.validation import TASK_NAME, Consistent, misfit
from bough.user_paths import place

MINILM = "minilm"  # the encoder that comes with the demo extra
Schedule = Literal["constant", "linear", "cosine", "onecycle"]
SELECTORS = ("raw", "normalised", "sum", "last")
# Words that plans, answers and `select` use for something else.
RESERVED = ("all", "id", *SELECTORS)


def _moment(value: object) -> object:
    if value == "epoch" or (str(value).isdecimal() and int(str(value)) >= 1):
        return value
    raise ValueError("expected epoch, or a number of steps of at least 1")


def _table_or_text(value: object) -> object:
    if isinstance(value, Mapping) or (isinstance(value, str) and value.strip()):
        return value
    raise ValueError("expected the plan's text, for example split@3, or its table")


class Phase(BaseModel):
    """One stretch of training; what is left out is as in `training`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    frozen: bool = Field(False, description="Hold the trunk fixed: only the heads learn.")
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
        given = self.model_dump(exclude={"frozen"}, exclude_none=True)
        return training.model_copy(update={"steps": None, "phases": (), **given})

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise misfit("a phase needs its length: give either epochs or steps")
        return self


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
        "normalised",
        description="The dev score that picks the model: raw, normalised, sum, last or a task.",
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
    length_window: int = Field(
        50, ge=0, description="Batches within which examples are sorted by length; 0 for none."
    )
    phases: tuple[Phase, ...] = Field(
        (), description="Stretches of training one after the other, for example frozen, then tuned."
    )
    log_every: int = Field(20, ge=1, description="Steps between two lines of metrics.jsonl.")
    cosines_every: int = Field(
        0, ge=0, description="Steps between two logs of the gradients' cosines; 0 for never."
    )
    evaluate_every: Annotated[Literal["epoch"] | int, BeforeValidator(_moment)] = Field(
        "epoch", description="When the dev rows are judged: every epoch, or every so many steps."
    )


class Recipe(Consistent):
    """The whole experiment: encoder, plan, data, tasks and training, checked.

    Example:
        >>> recipe = bough.Recipe.read("recipe.yaml", ["training.lr=1e-4", "plan=split@1"])
        >>> recipe.training.lr
        0.0001
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={"description": "The whole experiment."},
    )

    encoder: str = Field(
        MINILM, min_length=1, description="The pretrained encoder: a folder, a hub id, or minilm."
    )
    plan: Annotated[str | dict[str, Any], BeforeValidator(_table_or_text)] = Field(
        "full", description="What the tasks share: the plan's one-line text, or its table."
    )
    data: str = Field(
        ".", min_length=1, description="The folder that relative paths of the tasks start from."
    )
    tasks: dict[str, Task] = Field(min_length=1, description="The tasks, each under its name.")
    rows: Literal["error", "skip"] = Field(
        "error", description="What a bad row does: stop with an error, or be skipped and counted."
    )
    max_length: int = Field(
        512, ge=8, description="Tokens of a text or a joint pair; what is beyond is cut off."
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$",
        description="Where to compute: auto, cpu, cuda, cuda:N or mps.",
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="Precision of the trunk.")
    threads: int | None = Field(None, ge=1, description="CPU threads; null takes what is free.")
    training: Training = Field(default_factory=Training, description="How the weights are learned.")

    _folder: Path | None = PrivateAttr(None)  # the file's, as long as `data` was not found
    _data_origin: str = PrivateAttr("the recipe")  # where `data` was set, for the same case
    _written: dict[yaml.Path, str] = PrivateAttr(default_factory=dict)  # paths that name variables

    @classmethod
    def read(
        cls,
        source: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
        overrides: Sequence[str] = (),
        unset: Literal["error", "keep"] = "error",
    ) -> Recipe:
        """A recipe, read and checked.

        Args:
            source: A YAML file, a mapping of the same keys, or another recipe.
            overrides: Settings `a.b=c`, as those of `bough train --set`.
            unset: What a variable in a path does that is not set: `keep` leaves it standing, for
                those who do not read the data.

        Raises:
            UserError: With the line, the key and the near miss.
        """
        if isinstance(source, Recipe):
            if not overrides:
                return source
            data = mapped(source, lambda text, _: text)
            raw = RawSettings(
                data, "the recipe", {}, source._folder, _keys, variables=_variables,
                written=dict(source._written),
            )  # fmt: skip
        else:
            raw = RawSettings.read(source, _keys, variables=_variables, unset=unset)
        for override in overrides:
            raw.override(override)
        try:
            recipe = cls.model_validate(raw.data)
        except ValidationError as fault:
            raise raw.user_error(fault.errors()) from None
        recipe._folder = raw.folder
        recipe._data_origin = raw.where(("data",))
        recipe._written = raw.written
        folder = recipe._data_folder()
        if folder is not None:
            tasks = {name: recipe._placed(task, folder) for name, task in recipe.tasks.items()}
            recipe = recipe.model_copy(update={"data": str(folder), "tasks": tasks})
            recipe._folder = None
        return recipe

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, wherever they were read from."""
        return isinstance(other, Recipe) and self.__dict__ == other.__dict__

    @property
    def root(self) -> Path:
        """The data folder, found."""
        folder = self._data_folder()
        if folder is None:
            looked = " and ".join(str(folder) for folder in self._candidates())
            raise UserError(
                f"{self._data_origin}: data: no such folder, looked for {looked}; set it to the "
                "right one"
            )
        return folder

    def anchored(self) -> Recipe:
        """With an encoder's folder by its full path, so that it is found from anywhere."""
        folder = os.path.expanduser(self.encoder)
        if self.encoder == MINILM or not os.path.isdir(folder):
            return self
        return self.model_copy(update={"encoder": os.path.realpath(folder)})

    def task_weights(self) -> dict[str, float]:
        """Loss weight of each task."""
        weights = self.training.weights
        return {name: weights.get(name, task.weight) for name, task in self.tasks.items()}

    def dump(self) -> str:
        """The recipe as YAML, every key present; reading it gives an equal recipe.

        Paths that were written with variables name them still, where that leads to the same place.
        """

        def text(value: str, path: yaml.Path) -> str:
            kept = unresolved(self._written[path], value) if path in self._written else None
            return escaped(value) if kept is None else kept

        return yaml.write(mapped(self, text))

    def _candidates(self) -> list[Path]:
        folders = [place(self.data, Path.cwd())]
        if self._folder is not None:
            folders.append(place(self.data, self._folder.absolute()))
        return list(dict.fromkeys(folders))

    def _data_folder(self) -> Path | None:
        """The folder that holds most of the files named; of two such, the first."""
        # os.path says no to a name that the system does not take, where a Path raises.
        folders = [folder for folder in self._candidates() if os.path.isdir(folder)]
        sources = (getattr(task, split) for task in self.tasks.values() for split in SPLITS)
        files = [source for source in sources if isinstance(source, str)]

        def held(folder: Path) -> int:
            return sum(os.path.exists(place(file, folder)) for file in files)

        return max(folders, key=held).resolve() if folders else None

    def _placed(self, task: Task, folder: Path) -> Task:
        """With the full path of what is not in that folder and is in another it was looked for."""
        elsewhere: dict[str, str] = {}
        for split in SPLITS:
            file = getattr(task, split)
            if isinstance(file, str) and not os.path.exists(place(file, folder)):
                beside = [] if self._folder is None else [self._folder.absolute()]
                places = (place(file, folder) for folder in (*self._candidates(), *beside))
                other = next(filter(os.path.exists, places), None)
                if other is not None:
                    elsewhere[split] = str(other)
        return task.model_copy(update=elsewhere) if elsewhere else task

    def _problems(self) -> Iterator[tuple[yaml.Path, str]]:
        for name in self.tasks:
            if not TASK_NAME.fullmatch(name):
                yield ("tasks", name), "a task's name has letters, digits, - and _ only"
            if name in RESERVED:
                yield ("tasks", name), "this name has a meaning of its own; take another"
        for name in self.training.weights:
            if name not in self.tasks:
                names = listed(list(self.tasks))
                problem = f"there is no such task, only {names}{nearest(name, self.tasks)}"
                yield ("training", "weights", name), problem
        if not any(self.task_weights().values()):
            yield ("training", "weights"), "every task has weight 0; give one of them more"
        select = self.training.select
        known = (*SELECTORS, *self.tasks)
        if select not in known:
            problem = f"{select!r} is no score; expected {listed(known)}{nearest(select, known)}"
            yield ("training", "select"), problem
        for key, check in _METHODS.items():
            try:
                check(getattr(self.training, key))
            except UserError as error:
                yield ("training", key), str(error)
        lengths = [k for k in ("steps", "tokens", "minutes") if getattr(self.training, k)]
        if self.training.phases and lengths:
            problem = f"phases have their own lengths; leave `{lengths[0]}` out"
            yield ("training", lengths[0]), problem
        if len(lengths) > 1:
            problem = f"the run has its length by `{lengths[0]}` already; keep one of the two"
            yield ("training", lengths[1]), problem


_METHODS: dict[str, Callable[[str], object]] = {
    "sampling": methods.parse_sampling,
    "combine": lambda text: methods.parse(text, methods.COMBINATIONS),
    "weighting": lambda text: methods.parse(text, methods.WEIGHTINGS),
}


def schema() -> dict[str, Any]:
    """JSON schema of a recipe."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema()}


def _variables(path: yaml.Path) -> Literal["fill", "refuse"]:
    match path:
        case ("encoder" | "data",):
            return "fill"
        case ("tasks", _, split) | ("tasks", _, split, "hub") if split in SPLITS:
            return "fill"
    return "refuse"


def _keys(path: yaml.Path) -> Mapping[str, FieldInfo] | None:
    """The keys that may stand at a place of a recipe; None where the user names them."""
    match path:
        case ():
            return Recipe.model_fields
        case ("tasks", _):
            return Task.model_fields
        case ("tasks", _, split) if split in SPLITS:
            return Hub.model_fields
        case ("tasks", _, "limit"):
            return Limit.model_fields
        case ("training",):
            return Training.model_fields
        case ("training", "phases", _):
            return Phase.model_fields
    return None
