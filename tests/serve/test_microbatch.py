"""The queue: who is answered when, and that nobody is forgotten."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from prometheus_client import generate_latest

from bough.inference.answers import Answer
from bough.serve.microbatch import (
    Answers,
    DeadlyText,
    Job,
    Microbatcher,
    PredictionFailed,
    Query,
    QueueFull,
    estimated_tokens,
)
from bough.serve.prometheus import Metrics
from tests.serving import samples

TASK = ("t",)
WAIT = 10  # seconds that a test waits for an answer


def answer(text: object) -> Answers:
    return {"t": Answer(label=str(text))}


class Panic(BaseException):
    """As pyo3 raises them."""


class Echo:
    """Answers with the text itself; keeps the passes it made, and waits when told to."""

    def __init__(self) -> None:
        self.passes: list[list[str]] = []
        self.going = threading.Event()
        self.going.set()
        self.begun = threading.Event()

    def __call__(self, asked: Sequence[Query]) -> Iterator[Answers]:
        self.passes.append([str(text) for text, _ in asked])
        self.begun.set()
        assert self.going.wait(WAIT)
        for text, _ in asked:
            if text == "poison":
                raise RuntimeError("cannot read this")
            if text == "panic":
                raise Panic("a fault of the tokenizer")
            yield {"t": Answer(value=math.nan)} if text == "nan" else answer(text)


def make(*echoes: Echo, capacity: int = 1000, budget: int = 100) -> Microbatcher:
    new = iter((*echoes, *(Echo() for _ in range(9)))).__next__  # those that follow are spare ones
    batcher = Microbatcher(new, len(echoes), capacity, budget, 512, Metrics())
    batcher.start()
    return batcher


def ask(batcher: Microbatcher, *texts: str) -> Job:
    return batcher.submit([(text, TASK) for text in texts])


def labels(request: Job) -> list[str | None]:
    return [answers["t"].label for answers in request.future.result(WAIT)]


def held(echo: Echo, batcher: Microbatcher) -> Job:
    """Keep the only thread busy, so that what follows has to queue."""
    echo.going.clear()
    echo.begun.clear()
    request = ask(batcher, "first")
    assert echo.begun.wait(WAIT)
    return request


def test_answers_keep_the_order_of_their_request() -> None:
    batcher = make(Echo(), Echo(), budget=20)
    requests = [ask(batcher, *(f"{n} {'x' * (17 * i % 90)}" for i in range(9))) for n in range(20)]
    for n, request in enumerate(requests):
        assert labels(request) == [f"{n} {'x' * (17 * i % 90)}" for i in range(9)]
    batcher.close()
    assert batcher.waiting == 0


def test_what_waits_is_answered_together() -> None:
    echo = Echo()
    batcher = make(echo)
    held(echo, batcher)
    requests = [ask(batcher, f"text {n}") for n in range(10)]
    assert batcher.waiting == 10
    echo.going.set()
    assert [labels(request) for request in requests] == [[f"text {n}"] for n in range(10)]
    assert len(echo.passes) == 2
    batcher.close()


def test_a_pass_keeps_to_its_budget() -> None:
    echo = Echo()
    batcher = make(echo, budget=300)
    held(echo, batcher)
    request = ask(batcher, *["x" * 400] * 9, "x" * 4000)  # 102 tokens each, and a very long one
    echo.going.set()
    labels(request)
    batcher.close()
    assert [len(texts) for texts in echo.passes] == [1, 2, 2, 2, 2, 1, 1]


def test_short_requests_go_past_the_rest_of_long_ones() -> None:
    echo = Echo()
    batcher = make(echo, budget=300)
    held(echo, batcher)
    long = ask(batcher, *["x" * 400] * 20)
    short = ask(batcher, "y")
    echo.going.set()
    labels(long)
    labels(short)
    batcher.close()
    assert "y" in echo.passes[1]  # although 20 long texts came first


def test_nothing_goes_past_a_long_text_for_ever() -> None:
    echo = Echo()
    batcher = make(echo, budget=256)
    held(echo, batcher)
    long = ask(batcher, "x" * 2000)
    short = [ask(batcher, "y" * 100) for _ in range(30)]
    echo.going.set()
    passed = 0
    while not long.future.done():  # short texts keep coming
        labels(short.pop(0))
        short.append(ask(batcher, "y" * 100))
        passed += 1
        assert passed < 2000
    batcher.close()


def test_idle_threads_share_a_large_request() -> None:
    one, two = Echo(), Echo()
    batcher = make(one, two, budget=5000)
    while batcher._idle < 2:
        time.sleep(0.001)
    one.going.clear()
    two.going.clear()
    request = ask(batcher, *["x" * 400] * 10)
    assert one.begun.wait(WAIT)
    assert two.begun.wait(WAIT)
    one.going.set()
    two.going.set()
    labels(request)
    batcher.close()
    assert {len(one.passes[0]), len(two.passes[0])} <= {4, 5, 6}


def test_a_full_queue_refuses_whole_requests() -> None:
    echo = Echo()
    batcher = make(echo, capacity=5)
    held(echo, batcher)
    taken = ask(batcher, "a", "b", "c")
    with pytest.raises(QueueFull):
        ask(batcher, "d", "e", "f")
    assert batcher.ready
    more = ask(batcher, "d", "e")
    assert not batcher.ready
    assert batcher.retry_after() >= 1
    echo.going.set()
    assert labels(taken) == ["a", "b", "c"]
    assert labels(more) == ["d", "e"]
    batcher.close()


def test_one_bad_text_spoils_no_other_answer(caplog: pytest.LogCaptureFixture) -> None:
    echo = Echo()
    batcher = make(echo)
    held(echo, batcher)
    good, bad = ask(batcher, "a", "b"), ask(batcher, "c", "poison")
    echo.going.set()
    assert labels(good) == ["a", "b"]
    with pytest.raises(PredictionFailed, match="RuntimeError: cannot read"):
        labels(bad)
    assert labels(ask(batcher, "d")) == ["d"]  # the thread lives on
    batcher.close()
    assert "could not be answered" in caplog.text


def test_who_gives_up_is_not_computed() -> None:
    echo = Echo()
    batcher = make(echo)
    held(echo, batcher)
    gone, stays = ask(batcher, "gone"), ask(batcher, "stays")
    assert gone.future.cancel()
    assert batcher.waiting == 1  # at once: its room is free
    echo.going.set()
    assert labels(stays) == ["stays"]
    batcher.close()
    assert batcher.waiting == 0
    assert echo.passes == [["first"], ["stays"]]


def test_closing_answers_what_was_taken() -> None:
    echo = Echo()
    batcher = make(echo, budget=10)
    first = held(echo, batcher)
    requests = [ask(batcher, *(f"{n}.{i}" for i in range(5))) for n in range(50)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while batcher.ready:
        time.sleep(0.001)
    with pytest.raises(QueueFull):
        ask(batcher, "too late")
    echo.going.set()
    closing.join(WAIT)
    assert not closing.is_alive()
    assert labels(first) == ["first"]
    for n, request in enumerate(requests):
        assert labels(request) == [f"{n}.{i}" for i in range(5)]


def test_tokens_are_about_right_in_many_languages() -> None:
    assert estimated_tokens("How do I learn to play the piano?") in range(8, 14)
    assert estimated_tokens("今天天气很好") in range(4, 9)
    assert estimated_tokens(("a b c d", "e f g h")) in range(4, 12)
    assert estimated_tokens("\ud800") == 2  # half a character is a character, too


def test_passes_are_counted() -> None:
    metrics = Metrics()
    batcher = Microbatcher(Echo, 1, 10, 100, 512, metrics)
    batcher.start()
    labels(ask(batcher, "a", "b", "c"))
    batcher.close()
    counts = samples(generate_latest(metrics.registry).decode())
    assert counts["bough_pass_texts_bucket", "2.0"] == 0
    assert counts["bough_pass_texts_bucket", "4.0"] == 1
    assert counts["bough_pass_texts_sum",] == 3
    assert counts["bough_queue_texts",] == 0


def test_a_panic_costs_its_text_and_its_predictor_only(caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = Echo(), Echo(), Echo()
    new = iter((first, second, third)).__next__
    batcher = Microbatcher(new, 1, 1000, 100, 512, Metrics())
    batcher.start()
    held(first, batcher)
    good, bad = ask(batcher, "a"), ask(batcher, "panic")
    first.going.set()
    assert labels(good) == ["a"]
    with pytest.raises(PredictionFailed, match="Panic: a fault of the tokenizer"):
        labels(bad)
    assert batcher.ready
    assert labels(ask(batcher, "b")) == ["b"]
    batcher.close()
    assert first.passes == [["first"], ["a", "panic"]]
    assert second.passes == [["a"], ["panic"]]  # each by itself, with a predictor that is whole
    assert third.passes == [["b"]]
    assert "a fault of the tokenizer" in caplog.text


def test_a_text_that_panics_twice_is_refused() -> None:
    batcher = make(Echo())
    for _ in range(2):
        with pytest.raises(PredictionFailed):
            labels(ask(batcher, "panic"))
    with pytest.raises(DeadlyText, match="text 2 makes the model fail; it is not tried again"):
        ask(batcher, "a", "panic")
    assert labels(ask(batcher, "a")) == ["a"]
    batcher.close()


def test_without_predictors_nothing_is_taken() -> None:
    batcher = Microbatcher(iter([Echo()]).__next__, 1, 10, 100, 512, Metrics())
    batcher.start()
    with pytest.raises(PredictionFailed):
        labels(ask(batcher, "panic"))  # and no other can be made
    batcher.close()
    assert not batcher.ready
    with pytest.raises(QueueFull):
        ask(batcher, "a")


def test_what_is_no_number_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    batcher = make(Echo())
    with pytest.raises(PredictionFailed, match="task 't' answers nan"):
        labels(ask(batcher, "nan"))
    batcher.close()
    assert "answers nan" in caplog.text
