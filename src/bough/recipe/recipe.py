"""A recipe: a whole experiment as one validated model, from a file, a dict or another recipe.

Whatever is wrong with it is said in one sentence: the key, the value, what was expected, and the
line of the file or the `--set` that it came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)
from pydantic.fields import FieldInfo

from bough.errors import UserError, listed, nearest
from bough.parts_of_speech.taggers import NAME
from bough.recipe import methods, yaml
from bough.recipe.pretraining import Pretraining
from bough.recipe.raw_settings import RawSettings, escaped, mapped, unresolved
from bough.recipe.sources import Hub, Limit
from bough.recipe.tasks import SPLITS, Task
from bough.recipe.teacher import FORMS, Teacher
from bough.recipe.training import SELECTORS, Distil, Phase, Smart, Training
from bough.recipe.validation import TASK_NAME, Consistent
from bough.user_paths import place

MINILM = "minilm"  # the encoder out of a package of its own (docs/installing.md)
# Words that plans, answers and `select` use for something else.
RESERVED = ("all", "id", *SELECTORS)


def _tagger(value: object) -> object:
    if value is None or (isinstance(value, str) and NAME.fullmatch(value)):
        return value
    raise ValueError("expected pattern, nltk, spacy:MODEL or null")


def _table_or_text(value: object) -> object:
    if isinstance(value, Mapping) or (isinstance(value, str) and value.strip()):
        return value
    raise ValueError("expected the plan's text, for example split@3, or its table")


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
        ".",
        min_length=1,
        description="The folder that relative paths of the tasks start from. It is looked for from "
        "the recipe's folder and from the current one: the one that holds more of the files is "
        "taken, where both do the recipe's.",
    )
    tasks: dict[str, Task] = Field(min_length=1, description="The tasks, each under its name.")
    rows: Literal["error", "skip"] = Field(
        "error", description="What a bad row does: stop with an error, or be skipped and counted."
    )
    max_length: int = Field(
        512, ge=8, description="Tokens of a text or a joint pair; what is beyond is cut off."
    )
    parts_of_speech: Annotated[str, BeforeValidator(_tagger)] | None = Field(
        None,
        description="Let the encoder see each word's part of speech, told by pattern (TextBlob's, "
        "English), nltk or spacy:MODEL; null for none.",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$",
        description="Where to compute: auto, cpu, cuda, cuda:N or mps.",
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="Of the trunk's products: fp32, bf16, or auto, the faster one here.",
    )
    threads: int | None = Field(None, ge=1, description="CPU threads; null takes what is free.")
    training: Training = Field(default_factory=Training, description="How the weights are learned.")
    pretraining: Pretraining | None = Field(
        None, description="What `bough pretrain` does; `bough train` does not look at it."
    )

    _folder: Path | None = PrivateAttr(None)  # the file's, as long as `data` was not found
    _origins: dict[yaml.Path, str] = PrivateAttr(default_factory=dict)  # of what a user wrote
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
                data, "the recipe", dict(source._origins), source._folder, _keys,
                variables=_variables, written=dict(source._written),
            )  # fmt: skip
        else:
            raw = RawSettings.read(source, _keys, variables=_variables, unset=unset)
        for override in overrides:
            raw.override(override)
        try:
            recipe = cls.model_validate(raw.data)
        except ValidationError as fault:
            raise raw.user_error(fault.errors()) from None
        typed = raw.origins.get(("training", "epochs"), "")
        # Phases that are laid over a recipe take the place of its epochs; the other way round
        # somebody asks for a length, and would not get it.
        if recipe.training.phases and recipe.training.epochs and typed.startswith("--set "):
            raise UserError(f"{typed}: phases have their own lengths; set those, or no phases")
        recipe._folder = raw.folder
        recipe._origins = raw.origins
        recipe._written = raw.written
        folder = recipe._data_folder()
        if folder is not None:
            tasks = {name: recipe._placed(task, folder) for name, task in recipe.tasks.items()}
            tasks = {name: recipe._with_teachers(task, folder) for name, task in tasks.items()}
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
            where = self._where("data") or "the recipe"
            raise UserError(
                f"{where}: data: no such folder, looked for {looked}; set it to the right one"
            )
        return folder

    @contextmanager
    def blamed(self, *path: str) -> Iterator[None]:
        """A mistake that comes to light within is told with the line or the `--set` behind it."""
        try:
            yield
        except UserError as error:
            where = self._where(*path)
            raise UserError(f"{where}: {error}" if where else str(error)) from None

    def _where(self, *path: str) -> str:
        """The origin of a value, or of the nearest thing around it; of a dict nothing is known."""
        above = (path[:length] for length in range(len(path), -1, -1))
        return next((self._origins[place] for place in above if place in self._origins), "")

    @property
    def origins(self) -> Mapping[yaml.Path, str]:
        """Where each value was written: a line of a file, or a `--set`."""
        return self._origins

    def traced(self, origins: Mapping[yaml.Path, str]) -> Recipe:
        """The same recipe, for messages that are to name these places."""
        recipe = self.model_copy()
        recipe._origins = dict(origins)
        return recipe

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

    def counted(self) -> tuple[str, ...]:
        """The tasks that the means are over: those that only help others before the last phase do
        not count, and those that nothing learns from are there to be judged."""
        phases, weights = self.training.phases, self.task_weights()
        last = (phases[-1].tasks if phases else None) or tuple(self.tasks)
        return tuple(name for name in self.tasks if name in last or not weights[name])

    def dump(self) -> str:
        """The recipe as YAML, every key present; reading it gives an equal recipe.

        Paths that were written with variables name them still, where that leads to the same place.
        """

        def text(value: str, path: yaml.Path) -> str:
            kept = unresolved(self._written[path], value) if path in self._written else None
            return escaped(value) if kept is None else kept

        return yaml.write(mapped(self, text))

    def _candidates(self) -> list[Path]:
        places = [*self._beside(), Path.cwd()]
        if self._origins.get(("data",), "").startswith("--set "):  # it was typed here
            places.reverse()
        return list(dict.fromkeys(place(self.data, folder) for folder in places))

    def _beside(self) -> list[Path]:
        """The recipe's folder, if it is a file."""
        return [] if self._folder is None else [self._folder.absolute()]

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
                roots = (*self._candidates(), *self._beside())
                places = (place(file, root) for root in roots)
                other = next(filter(os.path.exists, places), None)
                if other is not None:
                    elsewhere[split] = str(other)
        return task.model_copy(update=elsewhere) if elsewhere else task

    def _with_teachers(self, task: Task, folder: Path) -> Task:
        """With the full paths of what it learns from beside its own rows, where they are here."""
        roots = (folder, *self._beside(), Path.cwd())

        def found(name: str) -> str:
            places = (place(name, root) for root in roots)
            return str(next(filter(os.path.exists, places), name))

        teachers = tuple(
            teacher.model_copy(update={teacher.form: found(teacher.source)})
            for teacher in task.teacher
        )
        texts = tuple(name if name in self.tasks else found(name) for name in task.unlabelled)
        return task.model_copy(update={"teacher": teachers, "unlabelled": texts})

    def _texts_problem(self, name: str, source: str) -> str:
        """What speaks against more texts for a task from there."""
        other = self.tasks.get(source)
        if other is None:
            known = listed(list(self.tasks))
            no_file = TASK_NAME.fullmatch(source) is not None and not os.path.exists(source)
            return f"{source!r} is neither a file nor a task ({known})" if no_file else ""
        if source == name:
            return "its own train rows are learned from anyway; leave it out"
        if self.tasks[name].paired and not other.paired:
            return f"task {source!r} has single texts, and this task judges pairs; leave it out"
        return ""

    def _problems(self) -> Iterator[tuple[yaml.Path, str]]:
        for name, task in self.tasks.items():
            if not TASK_NAME.fullmatch(name):
                yield ("tasks", name), "a task's name has letters, digits, - and _ only"
            if name in RESERVED:
                yield ("tasks", name), "this name has a meaning of its own; take another"
            if task.loss == "pearson" and self.training.accumulate > 1:
                yield (
                    ("tasks", name, "loss"),
                    "the correlation is of a whole batch, which `accumulate` cuts into parts; set "
                    "a larger `batch` instead, or another loss",
                )
            for number, other in enumerate(task.unlabelled):
                problem = self._texts_problem(name, other)
                if problem:
                    yield ("tasks", name, "unlabelled", number), problem
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
        for number, phase in enumerate(self.training.phases):
            for name in phase.tasks or ():
                if name not in self.tasks:
                    names = f"{listed(list(self.tasks))}{nearest(name, self.tasks)}"
                    problem = f"there is no task {name!r}, only {names}"
                    yield ("training", "phases", number, "tasks"), problem
            if phase.tasks and not any(self.task_weights().get(name) for name in phase.tasks):
                problem = "every task of it has weight 0; nothing would be learned"
                yield ("training", "phases", number, "tasks"), problem
        if self.training.ema and self.training.swa:
            yield ("training", "swa"), "`ema` averages the weights already; keep one of the two"
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
        case ("encoder" | "data",) | ("pretraining", "start" | "files", *_):
            return "fill"
        case ("tasks", _, split) | ("tasks", _, split, "hub") if split in SPLITS:
            return "fill"
        case ("tasks", _, "teacher" | "unlabelled", *below):
            path_of = not below or isinstance(below[-1], int) or below[-1] in FORMS
            return "fill" if path_of else "refuse"
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
        case ("tasks", _, "teacher") | ("tasks", _, "teacher", int()):
            return Teacher.model_fields
        case ("training",):
            return Training.model_fields
        case ("training", "distil"):
            return Distil.model_fields
        case ("training", "smart"):
            return Smart.model_fields
        case ("training", "phases", _):
            return Phase.model_fields
        case ("pretraining",):
            return Pretraining.model_fields
    return None
