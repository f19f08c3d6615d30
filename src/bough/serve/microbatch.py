"""Texts of many requests, answered together.

Threads take the texts that wait, up to a budget of tokens, and answer them in one pass: no request
waits for company, and under load the passes fill by themselves. Whose turn it is follows fair
queueing (https://doi.org/10.1109/90.649569): a text's turn is the clock at its request's arrival
plus the tokens of its request up to and with it, and the clock is the last turn that was taken. So
a short text goes past the rest of a long request, and nothing can go past a text for ever.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from bough.inference.model import Answer, Text
from bough.serve.metrics import Meters

Asked = tuple[Text, tuple[str, ...]]  # a text and the tasks that are to answer it
Answers = dict[str, Answer]
Answerer = Callable[[Sequence[Asked]], Iterable[Answers]]
LEAST = 256  # tokens that are not worth sharing out between threads
PATIENCE = 60  # seconds, the most that a client is told to wait

log = logging.getLogger(__name__)


class NoRoom(Exception):
    """The queue is full."""


class Closed(Exception):
    """No more requests are taken: the server is on its way out."""


@dataclass
class Request:
    """The texts of one request, and its answers so far."""

    asked: Sequence[Asked]
    future: Future[Request] = field(default_factory=Future)
    answers: dict[int, Answers] = field(default_factory=dict)
    arrived: float = field(default_factory=time.perf_counter)
    begun: float = 0.0  # when the first of its texts was taken
    done: float = 0.0

    def settle(self, number: int, answers: Answers) -> None:
        self.answers[number] = answers
        if len(self.answers) == len(self.asked):
            self.done = time.perf_counter()
            with suppress(InvalidStateError):  # given up by its client a moment ago
                self.future.set_result(self)

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def __iter__(self) -> Iterator[Answers]:
        """The answers in the order of the texts."""
        return (self.answers[number] for number in range(len(self.asked)))


class Turn(NamedTuple):
    """One text in the queue; the smallest is next."""

    turn: int
    arrival: int
    number: int  # of the text in its request
    tokens: int
    request: Request


class Microbatcher:
    """A bounded queue, and one thread per answerer that empties it."""

    def __init__(
        self,
        answerers: Sequence[Answerer],
        room: int,
        budget: int,
        longest: int,
        meters: Meters,
    ):
        """Room for so many texts; passes of about `budget` tokens, of texts cut to `longest`."""
        self.room = room
        self.budget = budget
        self.longest = longest
        self.meters = meters
        self._queue: list[Turn] = []
        self._tokens = 0  # of the texts in the queue, about
        self._clock = 0
        self._arrivals = 0
        self._idle = 0
        self._pace = 0.0  # seconds per token of one thread, smoothed
        self._closed = False
        self._change = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, args=(answerer,), name=f"answers-{n}", daemon=True)
            for n, answerer in enumerate(answerers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Texts in the queue."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """Whether a text would be taken now."""
        return not self._closed and self.waiting < self.room

    def close(self) -> None:
        """Take nothing more, answer what was taken, and return when all is answered."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def submit(self, asked: Sequence[Asked]) -> Request:
        """Queue the texts of one request: all of them, or NoRoom."""
        request = Request(asked)
        sizes = [min(tokens(text), self.longest) for text, _ in asked]
        with self._change:
            if self._closed:
                raise Closed
            if self.waiting + len(asked) > self.room:
                raise NoRoom
            turn = self._clock
            for number, size in enumerate(sizes):
                turn += size
                heapq.heappush(self._queue, Turn(turn, self._arrivals, number, size, request))
            self._arrivals += 1
            self._tokens += sum(sizes)
            self._change.notify(len(self._threads))
        request.future.add_done_callback(self._drop)
        return request

    def _drop(self, future: Future[Request]) -> None:
        """A request that nobody waits for any more, or that has failed, leaves the queue."""
        if not future.cancelled() and future.exception() is None:
            return
        with self._change:
            self._queue = [item for item in self._queue if not item.request.future.done()]
            heapq.heapify(self._queue)
            self._tokens = sum(item.tokens for item in self._queue)

    def patience(self) -> int:
        """Seconds after which the queue will have room again, about."""
        return min(PATIENCE, max(1, math.ceil(self._tokens * self._pace / len(self._threads))))

    def _work(self, answerer: Answerer) -> None:
        while batch := self._take():
            self._answer(answerer, batch)

    def _take(self) -> list[Turn]:
        """The texts whose turn it is; none when the queue is closed and empty."""
        with self._change:
            self._idle += 1
            while not self._queue and not self._closed:
                self._change.wait()
            batch = self._pop()
            self._idle -= 1
        now = time.perf_counter()
        for item in batch:
            item.request.begun = item.request.begun or now
        return batch

    def _pop(self) -> list[Turn]:
        # What waits is shared out between the threads that have nothing to do.
        budget = min(self.budget, max(LEAST, self._tokens // self._idle))
        batch: list[Turn] = []
        while self._queue and (not batch or self._queue[0].tokens <= budget):
            item = heapq.heappop(self._queue)
            self._tokens -= item.tokens
            self._clock = max(self._clock, item.turn)
            batch.append(item)
            budget -= item.tokens
        return batch

    def _answer(self, answerer: Answerer, batch: Sequence[Turn]) -> None:
        asked = [item.request.asked[item.number] for item in batch]
        began = time.perf_counter()
        try:
            found = list(zip(batch, answerer(asked), strict=True))
        except Exception as error:
            if len(batch) > 1:  # one text must not spoil the others' answers
                for item in batch:
                    self._answer(answerer, [item])
                return
            log.exception("a text could not be answered")
            batch[0].request.fail(error)
            return
        self._note(batch, time.perf_counter() - began)
        for item, answers in found:
            item.request.settle(item.number, answers)

    def _note(self, batch: Sequence[Turn], seconds: float) -> None:
        size = sum(item.tokens for item in batch)
        with self._change:
            pace = seconds / size
            self._pace = pace if not self._pace else 0.9 * self._pace + 0.1 * pace
            self.meters.passed(len(batch), seconds)


def tokens(text: Text) -> int:
    """About how many tokens a text has: a quarter of its bytes fits most languages."""
    parts = (text,) if isinstance(text, str) else text
    return 2 + sum(len(part.encode(errors="replace")) for part in parts) // 4
