"""Methods as a recipe names them: the word, its number, and what is wrong with either."""

from __future__ import annotations

import math

import pytest

from bough.errors import UserError
from bough.recipe.methods import COMBINATIONS, SAMPLINGS, WEIGHTINGS, parse, parse_sampling


def test_a_number_is_given_or_goes_without_saying() -> None:
    assert parse("cagrad", COMBINATIONS) == ("cagrad", 0.4)
    assert parse(" cagrad : 0.7", COMBINATIONS) == ("cagrad", 0.7)
    name, number = parse("pcgrad", COMBINATIONS)
    assert name == "pcgrad"
    assert math.isnan(number)
    assert parse("dwa:3", WEIGHTINGS) == ("dwa", 3.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pc-grad", "did you mean 'pcgrad'"),
        ("nash", "none of sum, mean"),
        ("pcgrad:2", "takes no number"),
        ("cagrad:x", "from 0 on"),
        ("cagrad:-1", "from 0 on"),
        ("cagrad:inf", "from 0 on"),
        ("gradvac:2", "between 0 and 1"),
        ("fairgrad:0", "above 0"),
    ],
)
def test_methods_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(text, COMBINATIONS)


def test_samplings_carry_their_numbers() -> None:
    assert parse_sampling("each") == ("each", {})
    assert parse_sampling("power : .5") == ("power", {"power": 0.5})
    assert parse_sampling("temperature:2, cap:100") == (
        "temperature", {"temperature": 2.0, "cap": 100.0}
    )  # fmt: skip
    for form in SAMPLINGS:
        parse_sampling(form.replace(":A", ":1").replace(":T", ":1").replace(":N", ":1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eech", "none of each, round-robin.*did you mean 'each'"),
        ("sqrt:2", "'sqrt' takes no number"),
        ("power", "'power' needs a number"),
        ("power:-1", "the power must be 0 or more"),
        ("power:1,cap:2", "expected power:A"),
        ("temperature:0", "must be above 0"),
        ("temperature:inf", "needs a number"),
        ("temperature:2,cup:3", "expected temperature:T or temperature:T,cap:N"),
        ("temperature:2,cap:0.5", "the cap must be a whole number from 1 on"),
    ],
)
def test_samplings_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_sampling(text)
