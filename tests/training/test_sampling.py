import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.errors import UserError
from bough.recipe.methods import parse_sampling
from bough.training.sampling import BySize, Sampler, parse

SIZES = {"para": 141_506, "sst": 8_544, "sts": 6_040}
TEXTS = (
    "each",
    "round-robin",
    "proportional",
    "sqrt",
    "power:0.7",
    "annealed",
    "temperature:2",
    "temperature:5,cap:20000",
    "method1",
    "method2",
    "method3",
    "in-turn",
)


def make(text: str, sizes=SIZES, batch=32, epochs=10, steps_per_epoch=None) -> Sampler:
    return parse(text, sizes, batch, epochs, steps_per_epoch)


def frequencies(sampler: Sampler, epoch: int, steps: int = 20_000) -> dict[str, float]:
    rng = np.random.default_rng(0)
    counts = Counter[str]()
    for step in range(steps):
        counts.update(sampler.draw(epoch, step, rng))
    whole = sum(counts.values())
    return {task: counts[task] / whole for task in sampler.tasks}


def powers(alpha: float, sizes=SIZES) -> dict[str, float]:
    whole = sum(n**alpha for n in sizes.values())
    return {task: n**alpha / whole for task, n in sizes.items()}


# --- the systems as specified ---


@pytest.mark.parametrize(
    ("text", "epoch", "expected"),
    [
        ("round-robin", 0, powers(0)),
        ("power:0", 3, powers(0)),
        ("proportional", 0, powers(1)),
        ("sqrt", 5, powers(0.5)),
        ("power:0.7", 9, powers(0.7)),
        ("annealed", 0, powers(1)),
        ("annealed", 4, powers(1 - 0.8 * 4 / 9)),
        ("annealed", 9, powers(0.2)),
        ("temperature:2", 0, powers(0.5)),
        ("temperature:2,cap:20000", 0, powers(0.5, SIZES | {"para": 20_000})),
        ("temperature:1,cap:1", 0, powers(0)),
        ("each", 0, powers(0)),
    ],
)
def test_drawn_frequencies(text, epoch, expected):
    found = frequencies(make(text), epoch)
    assert found == pytest.approx(expected, abs=0.01)


def test_method_1():
    sampler = make("method1")
    assert sampler.steps(0) == 4423
    assert sampler.draw(0, 0, np.random.default_rng(0)) == {"para": 32, "sst": 2, "sts": 2}
    assert sampler.factors == {"para": 0.125, "sst": 17.0, "sts": 17.0}


def test_methods_2_and_3():
    for text, steps in (("method2", 4423), ("method3", 189)):
        sampler = make(text)
        assert sampler.steps(0) == steps
        assert sampler.draw(0, steps - 1, np.random.default_rng(0)) == dict.fromkeys(SIZES, 32)
        assert set(sampler.factors.values()) == {1.0}


def test_each_with_fixed_steps():
    sampler = make("each", batch=8, steps_per_epoch=1000)
    assert sampler.steps(0) == 1000
    assert sampler.draw(0, 0, np.random.default_rng(0)) == dict.fromkeys(SIZES, 8)
    assert make("each").steps(0) == 4423, "an epoch ends with the largest set, not the smallest"


def test_annealing_over_the_epochs():
    sampler = make("annealed", batch=40, epochs=25, steps_per_epoch=1950)
    assert isinstance(sampler, BySize)
    assert sampler.steps(7) == 1950
    for e in range(1, 26):
        assert sampler.alpha(e - 1) == pytest.approx(1 - 0.8 * (e - 1) / 24)
    assert sampler.alpha(24) == pytest.approx(0.2)
    assert sampler.alpha(100) == pytest.approx(0.2)


def test_annealing_with_one_epoch():
    sampler = make("annealed", epochs=1)
    assert isinstance(sampler, BySize)
    assert sampler.alpha(0) == 1.0
    assert frequencies(sampler, 0) == pytest.approx(powers(1), abs=0.01)


def test_in_turn_is_a_whole_pass_of_each():
    sizes = {"a": 10, "b": 3, "c": 8}
    sampler = make("in-turn", sizes, batch=4)
    rng = np.random.default_rng(0)
    drawn = [sampler.draw(2, step, rng) for step in range(sampler.steps(2))]
    assert drawn == [{"a": 4}, {"a": 4}, {"a": 2}, {"b": 3}, {"c": 4}, {"c": 4}]
    with pytest.raises(IndexError):
        sampler.draw(2, 6, rng)


# --- faults that others had ---


def test_round_robin_advances_also_across_epochs():
    sampler = make("round-robin", steps_per_epoch=4)
    rng = np.random.default_rng(0)
    turns = [next(iter(sampler.draw(e, s, rng))) for e in range(3) for s in range(4)]
    assert turns == list(SIZES) * 4


@pytest.mark.parametrize("text", ["proportional", "sqrt", "annealed", "round-robin"])
def test_an_epoch_is_as_long_as_all_sets_together(text):
    assert make(text).steps(0) == 4423 + 267 + 189


@pytest.mark.parametrize("text", TEXTS)
def test_one_task_alone(text):
    sampler = make(text, {"sst": 100}, batch=8, epochs=1)
    assert sampler.steps(0) == 13
    assert sampler.draw(0, 0, np.random.default_rng(0)) == {"sst": 8}
    assert sampler.factors == {"sst": 1.0}, "no other task, so nothing to balance against"


@pytest.mark.parametrize("text", TEXTS)
def test_the_generator_is_the_only_state(text):
    sampler, again = make(text), make(text)
    rng = np.random.default_rng(3)
    first = [sampler.draw(1, step, rng) for step in range(50)]
    state = rng.bit_generator.state
    rest = [sampler.draw(1, step, rng) for step in range(50, 100)]
    fresh = np.random.default_rng(99)
    fresh.bit_generator.state = state
    assert [again.draw(1, step, fresh) for step in range(50, 100)] == rest
    assert [again.draw(1, s, np.random.default_rng(3)) for s in range(1)] == first[:1]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    st.integers(1, 64),
    st.integers(1, 5),
)
def test_every_sampler_keeps_its_promises(text, sizes, batch, epochs):
    named = {f"t{i}": n for i, n in enumerate(sizes)}
    sampler = parse(text, named, batch, epochs, None)
    rng = np.random.default_rng(0)
    assert sampler.tasks == tuple(named)
    assert all(factor > 0 for factor in sampler.factors.values())
    assert sampler.describe()
    for epoch in (0, epochs - 1):
        last = sampler.steps(epoch) - 1
        for step in {0, last // 2, last}:
            drawn = sampler.draw(epoch, step, rng)
            assert drawn
            assert set(drawn) <= set(named)
            assert all(1 <= n <= batch for n in drawn.values())


def test_a_large_power_does_not_overflow():
    sampler = make("power:400")
    assert isinstance(sampler, BySize)
    assert sampler.probabilities(0) == pytest.approx({"para": 1.0, "sst": 0.0, "sts": 0.0})


def test_descriptions():
    assert "32 of para, 2 of sst, 2 of sts" in make("method1").describe()
    assert "0.125 (para), 17 (sst), 17 (sts)" in make("method1").describe()
    assert "90.7%" in make("annealed").describe()
    assert "in the last epoch" in make("annealed").describe()
    assert "in the last epoch" not in make("sqrt").describe()


# --- mistakes ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("anealed", "did you mean 'annealed'"),
        ("power:", "'power' needs a number"),
        ("power", "'power' needs a number"),
        ("power:x", "'power' needs a number"),
        ("power:nan", "'power' needs a number"),
        ("power:-1", "0 or more"),
        ("power:1,cap:3", "expected power:A"),
        ("temperature:0", "above 0"),
        ("temperature:2,cap:0", "whole number"),
        ("temperature:2,cap:1.5", "whole number"),
        ("temperature:2,lid:3", "temperature:T,cap:N"),
        ("sqrt:2", "takes no number"),
        ("each,cap:3", "takes no number"),
        ("", "none of each, round-robin"),
    ],
)
def test_unknown_texts(text, message):
    with pytest.raises(UserError, match=message):
        make(text)
    with pytest.raises(UserError, match=message):
        parse_sampling(text)


def test_spaces_do_not_matter():
    assert make(" temperature : 2 , cap : 5 ") == make("temperature:2,cap:5")


def test_an_empty_set_is_named():
    with pytest.raises(UserError, match="task 'sst' has no training rows"):
        make("each", {"sst": 0, "sts": 3})


@pytest.mark.parametrize("text", ["method1", "method2", "method3", "in-turn"])
def test_a_method_that_fixes_the_epoch_says_so(text):
    with pytest.raises(UserError, match="steps_per_epoch is 50"):
        make(text, steps_per_epoch=50)


def test_needs_no_torch():
    code = "import bough.training.sampling, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
