"""What a student loses, and what it costs."""

from __future__ import annotations

from bough.graft.judgement import Change, Price, price, requests_of
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
    pairs = list(zip(sentences(6), sentences(6, seed=1), strict=True))
    requests = requests_of([[(text,) for text in sentences(6)], pairs, pairs])
    apart, together = price(models, requests), price([one], requests)
    assert (apart.models, together.models) == (3, 1)
    assert apart.bytes > 2.5 * together.bytes
    assert min(apart.seconds, together.seconds) > 0
    known = Price(3, 3 * 2**20, 0.0271, apart.request)
    assert str(known) == "3 models, 3 MiB, 27.1 ms a text and a pair"


def test_a_request_has_a_text_of_each_form_from_all_tasks_alike() -> None:
    a, b, c = ([(f"{name}{i}",) for i in range(30)] for name in "abc")
    pairs = [(f"p{i}", "q") for i in range(50)]
    assert requests_of([a, b])[:3] == [(("a0",),), (("b0",),), (("a1",),)]
    assert requests_of([pairs])[1] == (("p1", "q"),)
    both = requests_of([a, pairs, b, c])
    assert both[4] == (("b1",), ("p4", "q"))
    assert len(both) == 40
