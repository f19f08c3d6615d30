"""Where a task's rows come from: a file, a hub set, or rows written out; and how many are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)

from bough.errors import UserError, nearest, shorten
from bough.recipe.labels import Classes


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
    unlabelled: int | None = Field(None, ge=1, description="Most texts for a teacher alone.")


Record = dict[str, Any] | tuple[Any, ...]

_FRAMES: dict[str, tuple[str, dict[str, Any]]] = {  # library -> the method that gives columns
    "pandas": ("to_dict", {"orient": "list"}),
    "polars": ("to_dict", {"as_series": False}),
    "datasets": ("to_dict", {}),
    "pyarrow": ("to_pydict", {}),
}


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
    """Lay in-memory data out as rows: a list of dicts or tuples, columns, or a frame."""
    if isinstance(value, PathLike):
        return fspath(value)
    if is_frame(value):
        value = columns_of(value)
    if isinstance(value, Mapping) and "hub" not in value:
        return _from_columns(value)
    if isinstance(value, list | tuple):
        return tuple(_record(number, row) for number, row in enumerate(value, 1))
    return value


def is_frame(value: object) -> bool:
    """Whether it is a frame of pandas or polars, an Arrow table or a set of `datasets`."""
    named = hasattr(value, "columns") or hasattr(value, "column_names")
    return named and _library(value) in _FRAMES


def _library(value: object) -> str:
    """Whose class it is; the library itself need not be there."""
    return type(value).__module__.partition(".")[0]


def columns_of(value: Any) -> dict[str, list[Any]]:
    """A frame's columns."""
    way, options = _FRAMES[_library(value)]
    columns: dict[str, list[Any]] = getattr(value, way)(**options)
    for name, feature in getattr(value, "features", {}).items():
        if classes := getattr(feature, "names", None):  # numbers that stand for names
            columns[name] = [
                classes[cell] if isinstance(cell, int) and cell >= 0 else None
                for cell in columns[name]
            ]
    return columns


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


def as_source(value: object, called: str) -> Source:
    """Rows that were given outside a recipe, as one would take them; a UserError if it is none."""
    try:
        source: Source = TypeAdapter(Source).validate_python(value)
    except ValidationError as fault:
        reason = fault.errors()[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"{called}: {reason} (found {shorten(value)})") from None
    return source
