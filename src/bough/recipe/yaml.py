"""Notation: YAML as recipes write it, each value knowing its line.

YAML 1.2 scalars (so `5e-5` is a number and `no` a word), no key twice, no tags, all keys as text.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from bough.errors import UserError

Path = tuple[str | int, ...]  # the way to a value: keys of mappings, places in lists
_MOST = 5_000_000  # values a file may unfold to: aliases of aliases grow without bound

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": (r"~|null|Null|NULL|", [*"~nN", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?[0-9]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        [*"-+.0123456789"],
    ),
    "merge": (r"<<", ["<"]),
}


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012  (yaml's own way to say it)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = {}  # noqa: RUF012  (yaml's own way to say it)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # yaml would write these line ends bare, and read them back as blanks.
    style = '"' if any(end in text for end in "\r\x85\u2028\u2029") else None
    return dumper.represent_scalar(_TAG + "str", text, style)


_Dumper.add_representer(str, _quoted)

for _kind, (_pattern, _first) in _SCALARS.items():
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})\Z"), _first)


def parse(text: str, where: str) -> tuple[Any, dict[Path, int]]:
    """The value a YAML text stands for, and the line of every key and item in it."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        return _Builder(where).whole(node)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        at = f" line {mark.line + 1}" if mark else ""
        raise UserError(f"{where}{at} is not YAML: {fault.problem or fault.context}") from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, int(fault.position)) + 1
        raise UserError(f"{where} line {line} is not YAML: {fault.reason}") from None
    except RecursionError:
        raise UserError(f"{where} is nested too deeply to be read") from None
    except (yaml.YAMLError, ValueError, OverflowError) as fault:
        raise UserError(f"{where} is not YAML: {fault}") from None


def write(value: Any) -> str:
    """Plain data as YAML that `parse` reads back unchanged."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None
    )


class _Builder:
    """Turns yaml's nodes into plain data."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: dict[Path, int] = {}
        self.size = 0
        self.open: set[int] = set()  # collections being built, to notice one inside itself

    def whole(self, node: yaml.Node | None) -> tuple[Any, dict[Path, int]]:
        return (None if node is None else self.build(node, ())), self.lines

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.size += 1
        if self.size > _MOST:
            raise self.mistake(node, f"the aliases unfold to more than {_MOST:,} values")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if id(node) in self.open:
            raise self.mistake(node, "an alias stands inside what it refers to")
        self.open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            made: Any = self.mapping(node, path)
        else:
            self.plain_tag(node, "seq")
            made = [self.item(item, (*path, place)) for place, item in enumerate(node.value)]
        self.open.discard(id(node))
        return made

    def item(self, node: yaml.Node, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self.build(node, path)

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self.plain_tag(node, "map")
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                merged = {**self.merge(value, path), **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise self.mistake(key, "a key is a list or a mapping; expected a word")
            line = key.start_mark.line + 1
            if key.value in own:
                said = f"{dotted((*path, key.value))} is there twice"
                before = self.lines[(*path, key.value)]
                raise self.mistake(key, f"{said}, on line {before} too; keep one")
            self.lines[(*path, key.value)] = line
            own[key.value] = self.build(value, (*path, key.value))
        return {**merged, **own}

    def merge(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(part, yaml.MappingNode):
                raise self.mistake(part, "<< takes a mapping or a list of mappings")
            merged = {**self.build(part, path), **merged}
        return merged

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "str" | "merge":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return int(text, 16) if text.startswith("0x") else int(text)
            case "float":
                return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        raise self.mistake(node, f"the tag {node.tag} is not known here; write plain values")

    def plain_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            raise self.mistake(node, f"the tag {node.tag} is not known here; write plain values")

    def mistake(self, node: yaml.Node, what: str) -> UserError:
        return UserError(f"{self.where} line {node.start_mark.line + 1}: {what}")


def dotted(path: Path) -> str:
    """The path as overrides and messages write it."""
    return ".".join(map(str, path))
