import math

import pytest
import torch
import torchjd.scalarization as jd

from bough.errors import UserError
from bough.recipe.methods import WEIGHTINGS
from bough.training.loss_weighting import Random, Weighting, parse

TASKS = ("a", "b", "c")
every_method = pytest.mark.parametrize("method", WEIGHTINGS)


def make(method: str, tasks=TASKS, weights=None, seed: int = 0) -> Weighting:
    generator = torch.Generator().manual_seed(seed)
    return parse(method, weights or dict.fromkeys(tasks, 1.0), generator)


def draw(seed: int, tasks=TASKS) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(len(TASKS), generator=generator) * 3 + 0.05
    return {task: values[TASKS.index(task)] for task in tasks}


def numbers(losses) -> dict[str, float]:
    return {task: float(loss) for task, loss in losses.items()}


def steps(weighting: Weighting, seeds, tasks=TASKS) -> list[dict[str, float]]:
    found = []
    for seed in seeds:
        weighting.scale(draw(seed, tasks))
        found.append(dict(weighting.factors))
        weighting.learn(numbers(draw(seed, tasks)), numbers(draw(seed + 1000, tasks)))
        if seed % 4 == 3:
            weighting.close_epoch()
    return found


def slopes(scalarizer, losses: dict[str, torch.Tensor]) -> dict[str, float]:
    """What torchjd's scalarizer multiplies each loss's gradient by."""
    values = torch.stack(list(losses.values())).requires_grad_()
    (slope,) = torch.autograd.grad(scalarizer(values), values)
    return dict(zip(losses, slope.tolist(), strict=True))


# --- equal to torchjd ---


@pytest.mark.parametrize(
    ("method", "scalarizer"),
    [
        ("static", jd.Sum()),
        ("geometric", jd.GeometricMean()),
        ("tchebycheff", jd.STCH(0.1)),
        ("tchebycheff:0.7", jd.STCH(0.7)),
    ],
)
def test_without_memory(method, scalarizer):
    for seed in range(20):
        weighting, losses = make(method), draw(seed)
        weighting.scale(losses)
        assert weighting.factors == pytest.approx(slopes(scalarizer, losses), rel=1e-5)


@pytest.mark.parametrize(("method", "kind"), [("uncertainty", jd.UW), ("imtl-l", jd.IMTLL)])
def test_learned_beside_the_model(method, kind):
    weighting, theirs = make(method), kind(3).double()
    adam = torch.optim.Adam(theirs.parameters(), lr=0.025)
    for seed in range(100):
        losses = draw(seed)
        weighting.scale(losses)
        doubles = {task: loss.double() for task, loss in losses.items()}
        assert weighting.factors == pytest.approx(slopes(theirs, doubles), rel=1e-9)
        adam.zero_grad()
        theirs(torch.stack(list(doubles.values()))).backward()
        adam.step()
        weighting.learn(numbers(losses))


def test_famo():
    weighting, theirs = make("famo"), jd.FAMO(3)
    for seed in range(60):
        losses, after = draw(seed), draw(seed + 1000)
        weighting.scale(losses)
        assert weighting.factors == pytest.approx(slopes(theirs, losses), rel=1e-4)
        weighting.learn(numbers(losses), numbers(after))
        theirs.update(torch.stack(list(after.values())))


def test_dwa():
    weighting, theirs = make("dwa:3"), jd.DWA(3.0)
    for seed in range(20):
        weighting.scale(draw(seed))
        assert weighting.factors == pytest.approx(slopes(theirs, draw(seed)), rel=1e-5)
        weighting.learn(numbers(draw(seed)))
        if seed % 4 == 3:
            weighting.close_epoch()
            theirs.step()
    assert len(set(weighting.factors.values())) == 3


def test_random():
    weighting = make("random", seed=4)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        for seed in range(5):
            weighting.scale(draw(seed))
            assert weighting.factors == pytest.approx(slopes(jd.Random(), draw(seed)), rel=1e-5)
            drawn = dict(weighting.factors)
            weighting.scale(draw(seed + 1))  # another micro-batch of the same step
            assert weighting.factors == drawn
            weighting.learn(numbers(draw(seed)))


def test_uncertainty_finds_the_balance():
    """The best log-variance is the logarithm of the loss: each task then counts the same."""
    weighting = make("uncertainty")
    losses = {"a": torch.tensor(0.2), "b": torch.tensor(1.0), "c": torch.tensor(4.0)}
    for _ in range(400):
        scaled = weighting.scale(losses)
        weighting.learn(numbers(losses))
    assert [float(loss) for loss in scaled.values()] == pytest.approx([0.5] * 3, abs=0.01)


def test_dwa_gives_more_to_what_falls_slower():
    weighting = make("dwa", ("a", "b"))
    for a, b in ((1.0, 1.0), (0.9, 0.3)):
        weighting.learn({"a": a, "b": b})
        weighting.close_epoch()
    weighting.scale({"a": torch.tensor(0.8), "b": torch.tensor(0.1)})
    assert weighting.factors["a"] > 1 > weighting.factors["b"]
    assert sum(weighting.factors.values()) == pytest.approx(2)


# --- one backward per task ---


@every_method
def test_gradients_are_the_factors(method):
    weighting = make(method)
    steps(weighting, range(12))
    x = torch.tensor([0.5, 1.5, 2.5], requires_grad=True)
    scaled = weighting.scale(dict(zip(TASKS, (x**2).unbind(), strict=True)))
    for i, task in enumerate(TASKS):
        (slope,) = torch.autograd.grad(scaled[task], x, retain_graph=True)
        expected = torch.zeros(3)
        expected[i] = 2 * x[i].detach() * weighting.factors[task]
        torch.testing.assert_close(slope, expected)


@every_method
def test_given_weights_multiply(method):
    weights = {"a": 2.0, "b": 0.0, "c": 0.25}
    plain, weighted = make(method), make(method, weights=weights)
    for one, other in zip(steps(plain, range(12)), steps(weighted, range(12)), strict=True):
        assert other == pytest.approx({task: one[task] * weights[task] for task in TASKS})


# --- who is present ---


@every_method
def test_a_task_absent_does_not_change(method):
    def memory(weighting):
        state = weighting.state_dict()
        return {
            "number": state.get("numbers", {}).get("c"),
            "sum": state.get("sums", {}).get("c"),
            "history": state.get("history", {}).get("c"),
            "adam": str(state.get("adam", {}).get("state", {}).get(2)),
        }

    weighting = make(method)
    steps(weighting, range(10))
    before = memory(weighting)
    for seed in range(10):
        scaled = weighting.scale(draw(seed, ("a", "b")))
        assert set(scaled) == {"a", "b"} == set(weighting.factors)
        after = numbers(draw(seed + 50, ("a", "b")))
        weighting.learn(numbers(draw(seed, ("a", "b"))), after)
    assert memory(weighting) == before


@every_method
def test_one_task_per_step(method):
    weighting = make(method)
    for seed in range(30):
        task = TASKS[seed % 3]
        steps(weighting, [seed], (task,))
        assert 0 < weighting.factors[task] < 10


@every_method
def test_one_task_in_all(method):
    weighting = parse(method, {"a": 1.0}, torch.Generator())
    steps(weighting, range(12), ("a",))
    assert math.isfinite(weighting.factors["a"])


def test_dwa_with_a_task_that_comes_later():
    weighting = make("dwa", ("a", "b"))
    for epoch in range(4):
        weighting.scale({"a": torch.tensor(1.0 + epoch)})
        weighting.close_epoch()
    weighting.scale({"a": torch.tensor(1.0), "b": torch.tensor(1.0)})
    assert weighting.factors == {"a": 1.0, "b": 1.0}


# --- micro-batches ---


@pytest.mark.parametrize("method", ["uncertainty", "imtl-l", "famo", "dwa"])
def test_only_whole_steps_are_learned_from(method):
    one, other = make(method), make(method)
    for seed in range(8):
        one.scale(draw(seed))
        for part in (draw(seed + 100), draw(seed + 200)):
            other.scale(part)
        for weighting in (one, other):
            weighting.learn(numbers(draw(seed)), numbers(draw(seed + 1000)))
            weighting.close_epoch()
    one.scale(draw(0))
    other.scale(draw(0))
    assert other.factors == pytest.approx(one.factors, rel=1e-5)


# --- keeping and numbers ---


@every_method
def test_goes_on_bit_for_bit(method, tmp_path):
    whole = make(method, seed=1)
    expected = steps(whole, range(20))
    first = make(method, seed=1)
    steps(first, range(10))
    torch.save(first.state_dict(), tmp_path / "state.pt")
    generator = torch.Generator().manual_seed(1)
    if isinstance(first, Random):
        generator.set_state(first.generator.get_state())
    second = parse(method, dict.fromkeys(TASKS, 1.0), generator)
    second.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert steps(second, range(10, 20)) == expected[10:]


@every_method
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e6])
def test_extreme_losses_stay_numbers(method, value):
    weighting = make(method)
    for seed in range(12):
        losses = {**draw(seed), "b": torch.tensor(value)}
        scaled = weighting.scale(losses)
        assert all(loss.isfinite() for loss in scaled.values())
        weighting.learn(numbers(losses), numbers(losses))
        if seed % 3 == 2:
            weighting.close_epoch()


@pytest.mark.parametrize("method", ["uncertainty", "imtl-l"])
def test_a_loss_that_came_to_nothing_does_not_outweigh_all_others_without_end(method):
    weighting = make(method)
    for seed in range(2000):
        losses = {**draw(seed), "b": torch.tensor(1e-8)}
        scaled = weighting.scale(losses)
        weighting.learn(numbers(losses))
    assert float(scaled["b"]) / 1e-8 <= math.exp(10)


@every_method
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_handed_on(method, value):
    """The loop stops the run and says so; the weighting must not fall over it before."""
    weighting = make(method)
    scaled = weighting.scale({**draw(0), "b": torch.tensor(value)})
    assert not scaled["b"].isfinite()


@every_method
def test_the_global_generator_is_left_alone(method):
    before = torch.random.get_rng_state()
    steps(make(method), range(5))
    assert torch.equal(before, torch.random.get_rng_state())


def test_only_famo_looks_back():
    assert {method for method in WEIGHTINGS if make(method).looks_back} == {"famo"}
    weighting = make("famo")
    weighting.scale(draw(0))
    with pytest.raises(ValueError, match="looks back"):
        weighting.learn(numbers(draw(0)))


# --- texts ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uncertanty", "did you mean 'uncertainty'"),
        ("", "none of static"),
        ("famo:2", "takes no number"),
        ("dwa:x", "above 0"),
        ("dwa:0", "above 0"),
        ("tchebycheff:inf", "above 0"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(UserError, match=message):
        make(text)


# --- several processes ---


@every_method
def test_a_process_without_a_tasks_examples_weighs_like_the_others(method):
    """It is told the losses over all processes, and scales what it has."""
    whole, part = make(method), make(method)
    for seed in range(8):
        losses, after = draw(seed), draw(seed + 1000)
        scaled = whole.scale(losses)
        here = {task: losses[task] * 2 for task in ("a", "b")}  # its own are others than the means
        theirs = part.scale(here, numbers(losses))
        assert part.factors == whole.factors
        assert theirs == {task: scaled[task] * 2 for task in ("a", "b")}
        for weighting in (whole, part):
            weighting.learn(numbers(losses), numbers(after))
        whole.close_epoch()
        part.close_epoch()
    assert part.factors == whole.factors
