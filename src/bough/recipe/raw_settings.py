"""Settings as the user wrote them, before they are a recipe, and where each value came from.

A file or a dict with its variables filled in and its overrides applied. What pydantic has against
them becomes one sentence that leads back to the line or the `--set`. A variable may only stand in a
path: all else that a recipe says is shown with the model, and an environment holds secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from bough.errors import UserError, listed, nearest, shorten
from bough.recipe import yaml
from bough.recipe.sources import Hub
from bough.recipe.tasks import SPLITS
from bough.recipe.yaml import dotted
from bough.user_paths import read_bytes

Keys = Callable[[yaml.Path], Mapping[str, FieldInfo] | None]
"""The keys that may stand at a place; None where the user names them."""

Variables = Callable[[yaml.Path], Literal["fill", "refuse", "leave"]]
"""What becomes of the variables in the text at a place."""

MOST_NAMED = 3  # misspelt keys in one sentence
ELSEWHERE = {  # what other libraries call our keys
    "learning_rate": "lr", "batch_size": "batch", "per_device_train_batch_size": "batch",
    "num_train_epochs": "epochs", "max_steps": "steps", "weight_decay": "decay",
    "warmup_ratio": "warmup", "lr_scheduler_type": "schedule", "gradient_accumulation_steps":
    "accumulate", "max_grad_norm": "clip", "model": "encoder", "model_name": "encoder",
    "max_seq_length": "max_length",
}  # fmt: skip
_VARIABLE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\})?")


@dataclass
class RawSettings:
    """Settings as plain data, and the origin of each."""

    data: dict[str, Any]
    name: str  # what messages call the whole
    origins: dict[yaml.Path, str]
    folder: Path | None  # of the file, if it is one
    keys: Keys
    kind: str = "recipe"
    variables: Variables = lambda path: "refuse"
    unset: Literal["error", "keep"] = "error"  # what a variable does that has no value
    written: dict[yaml.Path, str] = field(default_factory=dict)  # texts that named variables

    @classmethod
    def read(
        cls,
        source: str | os.PathLike[str] | Mapping[str, Any],
        keys: Keys,
        kind: str = "recipe",
        needed: str = "tasks",
        variables: Variables = lambda path: "refuse",
        unset: Literal["error", "keep"] = "error",
    ) -> RawSettings:
        """The settings in a file or a dict; `needed` is the key that they must have."""
        if isinstance(source, Mapping):
            settings = cls({}, f"the {kind}", {}, None, keys, kind, variables, unset)
            value: Any = source
        elif isinstance(source, str | os.PathLike):
            path = Path(source)
            value, lines = yaml.parse(_text(path), str(path))
            origins: dict[yaml.Path, str] = {(): str(path)}
            origins |= {key: f"{path} line {line}" for key, line in lines.items()}
            settings = cls({}, str(path), origins, path.parent, keys, kind, variables, unset)
        else:
            expected = f"a {kind} is a file, a dict or a {kind.capitalize()}"
            raise UserError(f"{expected}, not {shorten(source)}")
        if value is None:
            raise UserError(f"{settings.name} is empty; expected at least `{needed}`")
        if not isinstance(value, Mapping):
            raise UserError(
                f"{settings.name} is {shorten(value)}; expected keys such as `{needed}`"
            )
        settings.data = settings.filled(value, ())
        return settings

    def filled(self, value: Any, path: yaml.Path) -> Any:
        """The value with its variables filled in."""
        try:
            return mapped(value, self._fill, path)
        except RecursionError:
            raise UserError(f"{self.name} holds itself or is nested too deeply") from None

    def _fill(self, text: str, path: yaml.Path) -> str:
        how = self.variables(path)
        if how == "leave":
            return text

        def fill(match: re.Match[str]) -> str:
            name, default = match[1], match[2]
            if match[0] == "$${":
                return "${"
            if name is None:
                raise UserError(
                    f"{self.where(path)}: {dotted(path)} is {shorten(text)}; write a variable as "
                    "${NAME} or ${NAME:-default}, and a bare ${ as $${"
                )
            if how == "refuse":
                raise UserError(
                    f"{self.where(path)}: {dotted(path)} names the variable {name}; only paths may "
                    "(encoder, data, train, dev, test, teacher), for the rest is shown with the "
                    "model: write the value itself, and a bare ${ as $${"
                )
            value = os.environ.get(name)
            if value is None and default is None:
                if self.unset == "keep":
                    return match[0]
                raise UserError(
                    f"{self.where(path)}: {dotted(path)} needs the variable {name}, which is not "
                    f"set; export {name}=..., or write ${{{name}:-default}}"
                )
            if value:  # the default is no secret, and is kept in its place
                named.append(name)
            return value or default or ""

        named: list[str] = []
        filled = _VARIABLE.sub(fill, text)
        self.written.pop(path, None)
        if named:
            self.written[path] = text
        return filled

    def override(self, text: str) -> None:
        """Apply one `a.b=c`; the value is read as YAML."""
        origin = f"--set {text}"
        key, sign, value = text.partition("=")
        path: yaml.Path = tuple(part.strip() for part in key.split("."))
        if not sign or "" in path:
            raise UserError(f"{origin}: expected KEY=VALUE, for example training.lr=3e-5")
        parsed, _ = yaml.parse(value, origin)
        holder: Any = self.data
        for depth in range(len(path)):
            step, here = path[depth], path[:depth]
            last = depth == len(path) - 1
            if isinstance(holder, list):
                holder, step = self._item(holder, step, here, origin), int(step)
            elif isinstance(holder, dict):
                self._allow(holder, step, here, last, origin)
            else:
                raise UserError(
                    f"{origin}: {dotted(here)} is {shorten(holder)}, which has no keys below it"
                )
            if last:
                break
            if isinstance(holder, dict) and holder.get(str(step)) is None:
                holder[str(step)] = {}
            holder = holder[step]
        path = (*path[:-1], step)
        for known in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = origin
        holder[step] = self.filled(parsed, path)

    def _item(self, holder: list[Any], step: str | int, here: yaml.Path, origin: str) -> Any:
        if not (str(step).isdecimal() and int(step) < len(holder)):
            raise UserError(
                f"{origin}: {dotted(here)} is a list of {len(holder)}, which has no item {step!r}; "
                "they are counted from 0"
            )
        return holder

    def _allow(
        self, holder: dict[str, Any], step: str | int, here: yaml.Path, last: bool, origin: str
    ) -> None:
        known = self.keys(here)
        if known is not None and step not in known:
            raise UserError(f"{origin}: {self._no_key((*here, step), known)}")
        if here == ("tasks",) and not last and step not in holder:
            names = listed(list(holder)) or "none"
            raise UserError(
                f"{origin}: there is no task {step!r}, only {names}{nearest(str(step), holder)}"
            )

    def where(self, path: yaml.Path) -> str:
        """The origin of a value, or of the nearest thing around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return self.name

    def user_error(self, errors: Sequence[ErrorDetails]) -> UserError:
        """The first of pydantic's complaints as a sentence; further misspelt keys are named with
        it, and the others counted: they may be its consequences."""
        # A misspelt key explains the missing one that is often reported before it.
        misspelt = [error for error in errors if error["type"] == "extra_forbidden"]
        first, *named = misspelt[:MOST_NAMED] or errors[:1]
        also = "".join(f"; also {self._blame(error)}" for error in named)
        rest = len(errors) - 1 - len(named)
        more = f" ({rest} more to fix after that)" if rest else ""
        return UserError(f"{self._blame(first)}{also}{more}")

    def _blame(self, error: ErrorDetails) -> str:
        path = (*self._path(error["loc"]), *error.get("ctx", {}).get("at", ()))
        return f"{self.where(path)}: {self._sentence(error, path)}"

    def _path(self, places: Sequence[str | int]) -> yaml.Path:
        """Pydantic's place in terms of what was written: its tags of alternatives left out."""
        return tuple(p for p in places if not (isinstance(p, str) and p[:1] + p[-1:] in _TAGS))

    def _no_key(self, path: yaml.Path, known: Mapping[str, object]) -> str:
        name = ELSEWHERE.get(str(path[-1]), str(path[-1]))
        if len(path) > 1 and name in (self.keys(()) or {}):
            close = f"; {name} stands in the {self.kind} itself"
        else:
            close = nearest(name, known) or f"; expected {listed(list(known), 50)}"
        return f"{dotted(path)} is no key of a {self.kind}{close}"

    def _sentence(self, error: ErrorDetails, path: yaml.Path) -> str:
        key, value = dotted(path) or f"the {self.kind}", error["input"]
        context = error.get("ctx", {})
        fields = self.keys(path[:-1]) if path else None
        help_ = fields[str(path[-1])].description if fields and str(path[-1]) in fields else None
        match error["type"]:
            case "missing":
                return f"{key} is missing. {help_ or ''}".strip()
            case "extra_forbidden":
                return self._no_key(path, fields or {})
            case "literal_error":
                words = re.findall(r"'([^']*)'", context["expected"])
                close = nearest(value, words) if isinstance(value, str) else ""
                return f"{key} is {shorten(value)}; expected {context['expected']}{close}"
            case "value_error":
                shown = "" if isinstance(value, Mapping) else f" (found {shorten(value)})"
                return f"{key}: {context['error']}{shown}"
            case "misfit":
                return f"{key}: {error['msg']}"
            case "model_type" | "dataclass_type" | "dict_type":
                return f"{key} is {shorten(value)}; expected keys and values below it"
            case "tuple_type":
                return f"{key} is {shorten(value)}; expected a list"
            case "too_short":
                return f"{key} is {shorten(value)}; expected at least one"
            case "string_pattern_mismatch":
                return f"{key} is {shorten(value)}. {help_ or ''}".strip()
        expected = error["msg"].partition(", unable")[0].replace("Input should be", "expected", 1)
        expected = re.sub(r"^expected (?=greater|less)", "expected a number ", expected)
        return f"{key} is {shorten(value)}; {expected[0].lower()}{expected[1:]}"


_TAGS = ("<>", "[]")  # brackets of a tag of ours, and of pydantic's "[key]"


def unresolved(written: str, value: str) -> str | None:
    """The text with its variables still named, if from anywhere it gives this value again."""

    def bare(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name is None:
            return match[0]
        # Without its default: where the variable is not set, that is to be said.
        return f"${{{name}}}" if os.environ.get(name) else escaped(default or "")

    def fill(match: re.Match[str]) -> str:
        return "${" if match[1] is None else os.environ.get(match[1], "")

    kept = _VARIABLE.sub(bare, written)
    filled = _VARIABLE.sub(fill, kept)
    place = os.path.expanduser(filled)
    same = filled == value or (os.path.isabs(place) and os.path.realpath(place) == value)
    return kept if same else None


def escaped(text: str) -> str:
    """A text in which no variable is meant, as settings write it."""
    return text.replace("${", "$${")


def _text(path: Path) -> str:
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw.count(b"\n", 0, fault.start) + 1
        byte = raw[fault.start]
        raise UserError(
            f"{path} line {line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def mapped(value: Any, turn: Callable[[str, yaml.Path], str], path: yaml.Path = ()) -> Any:
    """A plain copy of settings, each text turned but for those of rows written out."""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if _is_rows(path, value):
        return _plain(value)
    if isinstance(value, Mapping):
        return {str(key): mapped(item, turn, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, turn, (*path, number)) for number, item in enumerate(value)]
    return turn(value, path) if isinstance(value, str) else value


def flattened(value: Any, path: str = "") -> dict[str, Any]:
    """Settings by dotted keys; lists are values."""
    if isinstance(value, Mapping) and value:
        return {
            k: v
            for key, below in value.items()
            for k, v in flattened(below, f"{path}.{key}").items()
        }
    return {path[1:]: value}


def _is_rows(path: yaml.Path, value: object) -> bool:
    """Whether these are rows in memory: their texts are data, and `${` in them means nothing."""
    if len(path) != 3 or path[0] != "tasks" or path[2] not in SPLITS:
        return False
    return not isinstance(value, str | Hub) and not (isinstance(value, Mapping) and "hub" in value)


def _plain(value: Any) -> Any:
    """Tuples as lists, which is how YAML has them."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if type(value) is dict else value
