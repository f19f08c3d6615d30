"""YAML as recipes write it: values that are what they look like, lines, and no aliases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.recipe.yaml import dotted, parse
from bough.recipe.yaml import write as dump
from tests.recipe.written import TEXT, Write


def test_yaml_values_are_what_they_look_like(write: Write) -> None:
    recipe = Recipe.read(
        write(TEXT.replace("sentence}", "sentence, labels: [no, yes, 010, 1e3]}")),
    )
    assert recipe.training.lr == 5e-5
    assert recipe.tasks["sst"].labels == ("no", "yes", "10", "1000")


def test_every_key_and_item_knows_its_line() -> None:
    value, lines = parse("a:\n  b: 1\n  c:\n  - x\n  - {d: null}\n", "f.yaml")
    assert value == {"a": {"b": 1, "c": ["x", {"d": None}]}}
    assert {dotted(path): line for path, line in lines.items()} == {
        "a": 1, "a.b": 2, "a.c": 3, "a.c.0": 4, "a.c.1": 5, "a.c.1.d": 5
    }  # fmt: skip


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "alias"),
    [
        ("one: &one {kind: classify}\ntwo: *one\n", 2, "*one"),
        ("one: &one {kind: classify}\ntwo: {<<: *one}\n", 2, "*one"),
        ("a: &a [*a]\n", 1, "*a"),
        (LAUGHS, 2, "*a"),
    ],
)
def test_aliases_are_refused_at_once(text: str, line: int, alias: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, "f.yaml")
    said = f"f.yaml line {line}: aliases such as {alias} are not read; write the value out"
    assert str(caught.value) == said


def test_an_anchor_that_nothing_refers_to_does_no_harm() -> None:
    assert parse("a: &a 1\n", "")[0] == {"a": 1}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(plain)
def test_what_is_written_reads_back(value: object) -> None:
    assert parse(dump(value), "")[0] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a: 1\n  b: 2\n",
            "line 2 is not YAML: its indentation is wrong: it begins after 2",
        ),
        ("a:\n  b: 1\n c: 2\n", "line 3 is not YAML: its indentation fits no line above it"),
        ("a:\n\tb: 1\n", "line 2 is not YAML: it is indented by a tab; use spaces (found 'b: 1')"),
        ("a:\n  b:x\n\n  # c\n  c: 1\n", "line 2 is not YAML: there is no space after the colon"),
        ("a: 1\nb 2\nc: 3\n", "line 2 is not YAML: there is no colon after the key (found 'b 2')"),
        ("a: b: c\n", "line 1 is not YAML: a value with a colon and a space in it is to be in quo"),
        ("a: [1, 2\nb: 3\n", "line 1 is not YAML: a bracket is opened here and not closed"),
        ("a: 'x\nb: 3\n", "line 1 is not YAML: a quote is opened here and not closed"),
        ("a: 1\n- b\n", "line 2 is not YAML: items of a list (- ...) and keys are mixed"),
        ("a: @x\n", "line 1 is not YAML: a value that begins with such a sign is to be in quotes"),
        ('a: "x" y\n', "line 1 is not YAML: there is something after the closing quote"),
    ],
)
def test_a_mistake_is_told_on_its_own_line_with_the_likely_cause(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(text, "r.yaml")
    assert f"r.yaml {said}" in str(refused.value)
    assert "\n" not in str(refused.value)
