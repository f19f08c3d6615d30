"""What classes are called: however a file writes them, one class has one name."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

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


def is_missing(cell: object, classes: Container[str] = ()) -> bool:
    """Whether a cell holds no label; `nan` is one only where it is among the classes."""
    if isinstance(cell, str):
        text = cell.strip()
        return not text or (text.lower() == "nan" and text not in classes)
    return cell is None or cell != cell


def number(cell: object) -> float | None:
    """The finite number that a cell holds, if it holds one."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return None
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


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
    if not isinstance(value, list | tuple):
        return value
    for name in value:
        if name is None or isinstance(name, list | tuple | Mapping):
            raise ValueError(
                "a class is a word or a number; put null into quotes if it is meant, and write no "
                "list within the list"
            )
    return tuple(map(class_name, value))


def _class_keys(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    keys: dict[str, object] = {}
    for key in value:
        other = keys.setdefault(class_name(key), key)
        if other is not key:
            raise ValueError(f"{other} and {key} are the same class; keep one of them")
    return {class_name(key): weight for key, weight in value.items()}


_LIST = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
_NAMES = {"type": "object", "additionalProperties": _LIST["items"]}
Classes = Annotated[tuple[str, ...], BeforeValidator(_class_names), WithJsonSchema(_LIST)]
# Also {what files write: what it is called}, which the task takes apart.
NamedClasses = Annotated[
    tuple[str, ...],
    BeforeValidator(_class_names),
    WithJsonSchema({"anyOf": [_LIST, _NAMES]}),
]
ClassWeights = Annotated[
    Annotated[Literal["balanced"], Tag("<word>")]
    | Annotated[dict[str, Annotated[float, Field(ge=0)]], Tag("<each>")],
    Discriminator(lambda value: "<each>" if isinstance(value, Mapping) else "<word>"),
    BeforeValidator(_class_keys),
]
