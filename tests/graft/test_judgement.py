"""What a student loses, and what it costs."""

from __future__ import annotations

from bough.graft.judgement import Change, Price, price
from tests.exports import TASKS, model_of, sentences


def test_a_loss_within_the_tolerance_may_still_be_uncertain() -> None:
    small = Change("a", "accuracy", 0.9, -0.004, 0.006, False)
    assert small.fits(0.01)
    assert small.certain(0.01)
    assert not small.fits(0.001)
    vague = Change("a", "accuracy", 0.9, -0.004, 0.03, False)
    assert vague.fits(0.01)
    assert not vague.certain(0.01)
    assert str(small) == "a −.004 ± .006"


def test_several_models_cost_more_than_one() -> None:
    models = [model_of("full", {name: task}) for name, task in TASKS.items()]
    one = model_of("full", TASKS)
    texts: list[tuple[str, ...]] = [(text,) for text in sentences(6)]
    texts += [*zip(sentences(6), sentences(6, seed=1), strict=True)]
    apart, together = price(models, texts), price([one], texts)
    assert (apart.models, together.models) == (3, 1)
    assert apart.bytes > 2.5 * together.bytes
    assert min(apart.seconds, together.seconds) > 0
    assert str(Price(3, 3 * 2**20, 0.0271)) == "3 models, 3 MiB, 27.1 ms a text"
