"""YAML as recipes write it, each value knowing its line.

YAML 1.2 scalars (so `5e-5` is a number and `no` a word), no key twice, no tags, all keys as text.
No aliases: a few lines of them unfold to more values than any memory holds.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from bough.errors import UserError, shorten

Path = tuple[str | int, ...]  # to a value: keys of mappings, places in lists

_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": (r"~|null|Null|NULL|", [*"~nN", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?[0-9]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        [*"-+.0123456789"],
    ),
}


_COLON_IN_VALUE = re.compile(r"\s*(?:- )?[^\s:]+:\s+[^\s'\"#{\[].*:(?:\s|$)")
NO_SPACE = "there is no space after the colon"
_NO_SPACE = re.compile(r"\s*(?:- )?[\w.*-]+:[^\s:/]")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012  (yaml's own way to say it)

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self.where = where

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()
            line = alias.start_mark.line + 1
            raise UserError(
                f"{self.where} line {line}: aliases such as *{alias.anchor} are not read; write "
                "the value out"
            )
        return super().compose_node(parent, index)


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
        loader = _Loader(text, where)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        builder = _Builder(where)
        return (None if node is None else builder.build(node, ())), builder.lines
    except yaml.MarkedYAMLError as fault:
        raise UserError(f"{where} {_mistake(text, fault)}") from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, int(fault.position)) + 1
        raise UserError(f"{where} line {line} is not YAML: {fault.reason}") from None
    except RecursionError:
        raise UserError(f"{where} is nested too deeply to be read") from None
    except (yaml.YAMLError, ValueError, OverflowError) as fault:
        raise UserError(f"{where} is not YAML: {fault}") from None


def _mistake(text: str, fault: yaml.MarkedYAMLError) -> str:
    """What is likely wrong: yaml notices many a mistake only on the line after it."""
    lines = [*text.splitlines(), ""]
    mark = fault.problem_mark or fault.context_mark
    at = min(mark.line, len(lines) - 1) if mark else 0
    opened = min(fault.context_mark.line, at) if fault.context_mark else at
    before = next((n for n in range(at - 1, -1, -1) if _says_something(lines[n])), at)
    problem = fault.problem or fault.context or "it cannot be read"
    if "\t" in _indent(lines[at]):
        line, what = at, "it is indented by a tab; use spaces"
    elif problem.startswith("mapping values") and _COLON_IN_VALUE.match(lines[at]):
        line, what = at, "a value with a colon and a space in it is to be in quotes"
    elif problem.startswith(("mapping values", "could not find expected ':'")):
        line, what = _unlike_a_key(lines, opened if problem.startswith("could") else before, at)
    elif problem.startswith("expected ',' or"):
        line, what = opened, "a bracket is opened here and not closed"
    elif problem == "found unexpected end of stream":
        line, what = opened, "a quote is opened here and not closed"
    elif problem.endswith("cannot start any token"):
        line, what = at, "a value that begins with such a sign is to be in quotes"
    elif (
        problem.startswith("expected <block end>")
        and mark
        and mark.column > len(_indent(lines[at]))
    ):
        line, what = at, "there is something after the closing quote or bracket"
    elif _NO_SPACE.match(lines[before]):
        line, what = before, NO_SPACE
    elif problem.startswith("expected <block end>"):
        line, what = at, _out_of_line(lines, before, at)
    else:
        line, what = at, problem
    return f"line {line + 1} is not YAML: {what} (found {shorten(lines[line].strip())})"


def _unlike_a_key(lines: list[str], before: int, at: int) -> tuple[int, str]:
    """Which of two lines that follow each other is no key and value, and why."""
    if _NO_SPACE.match(lines[before]):
        return before, NO_SPACE
    if not re.search(r":(\s|$)", lines[before]):
        return before, "there is no colon after the key"
    return at, f"its indentation is wrong: {_indents(lines, before, at)}, and has a value already"


def _out_of_line(lines: list[str], before: int, at: int) -> str:
    if len(_indent(lines[before])) == len(_indent(lines[at])):
        return "items of a list (- ...) and keys are mixed"
    return f"its indentation fits no line above it: {_indents(lines, before, at)}"


def _indents(lines: list[str], before: int, at: int) -> str:
    here, there = (len(_indent(lines[number])) for number in (at, before))
    return f"it begins after {here} blanks, line {before + 1} after {there}"


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


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

    def build(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        self.plain_tag(node, "seq")
        return [self.item(item, (*path, place)) for place, item in enumerate(node.value)]

    def item(self, node: yaml.Node, path: Path) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self.build(node, path)

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        self.plain_tag(node, "map")
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.error(key, "a key is a list or a mapping; expected a word")
            place = (*path, key.value)
            if key.value in values:
                before = self.lines[place]
                raise self.error(
                    key, f"{dotted(place)} is there twice, on line {before} too; keep one"
                )
            self.lines[place] = key.start_mark.line + 1
            values[key.value] = self.build(value, place)
        return values

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return int(text, 16) if text.startswith("0x") else int(text)
            case "float":
                return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        raise self.error(node, f"the tag {node.tag} is not known here; write plain values")

    def plain_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != _TAG + kind:
            raise self.error(node, f"the tag {node.tag} is not known here; write plain values")

    def error(self, node: yaml.Node, what: str) -> UserError:
        return UserError(f"{self.where} line {node.start_mark.line + 1}: {what}")


def dotted(path: Path) -> str:
    """The path as overrides and messages write it."""
    return ".".join(map(str, path))
