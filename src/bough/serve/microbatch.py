"""Texts of many requests, answered together.

Threads take the texts that wait, up to a budget of tokens, and answer them in one pass: no request
waits for company, and under load the passes fill by themselves. Whose turn it is follows fair
queueing (https://doi.org/10.1109/90.649569): a text's finish tag is the virtual time at its
request's arrival plus the tokens of its request up to and with it, and virtual time is the last tag
that was taken. So a short text goes past the rest of a long request, and nothing can go past a text
for ever. Tokens are estimated here, from bytes: only the model knows them, and only in the pass.
"""

from __future__ import annotations

import hashlib
import heapq
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from bough.inference.answers import Answer
from bough.inference.model import Text
from bough.machine_limits import Tidying
from bough.serve.prometheus import Metrics

Query = tuple[Text, tuple[str, ...]]  # a text and the tasks that are to answer it
Answers = dict[str, Answer]
Predictor = Callable[[Sequence[Query]], Iterable[Answers]]
MIN_SHARE = 256  # tokens that are not worth sharing out between threads
MAX_RETRY_AFTER = 60  # seconds
DEADLY = 2  # times that a text may make a predictor panic
REMEMBERED = 1024  # texts that have done so
TIDY = 5.0  # seconds of passes, after which memory is given back

log = logging.getLogger(__name__)


class QueueFull(Exception):
    """The queue takes no more, or no more at all."""


class DeadlyText(Exception):
    """A text that has made predictors panic; its number in the request is all it holds."""

    def __init__(self, number: int):
        super().__init__(f"text {number + 1} makes the model fail; it is not tried again")


class PredictionFailed(RuntimeError):
    """A text was not answered; an Exception whatever the cause, which may be a panic."""


@dataclass
class Job:
    """The texts of one request, and its answers so far."""

    queries: Sequence[Query]
    future: Future[Job] = field(default_factory=Future)
    answers: dict[int, Answers] = field(default_factory=dict)
    arrived: float = field(default_factory=time.perf_counter)
    begun: float = 0.0  # when the first of its texts was taken
    done: float = 0.0

    def settle(self, number: int, answers: Answers) -> None:
        self.answers[number] = answers
        if len(self.answers) == len(self.queries):
            self.done = time.perf_counter()
            with suppress(InvalidStateError):  # given up by its client a moment ago
                self.future.set_result(self)

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def __iter__(self) -> Iterator[Answers]:
        """The answers in the order of the texts."""
        return (self.answers[number] for number in range(len(self.queries)))


class QueueItem(NamedTuple):
    """One text in the queue; the smallest is next."""

    finish_tag: int
    arrival: int
    number: int  # of the text in its request
    tokens: int
    job: Job


class Microbatcher:
    """A bounded queue, and threads that empty it, each with a predictor of its own."""

    def __init__(
        self,
        new_predictor: Callable[[], Predictor],
        threads: int,
        capacity: int,
        budget: int,
        longest: int,
        metrics: Metrics,
    ):
        """So many texts may wait; passes of about `budget` tokens, of texts cut to `longest`."""
        self.new_predictor = new_predictor
        self.capacity = capacity
        self.budget = budget
        self.longest = longest
        self.metrics = metrics
        metrics.queue_texts.set(0)
        metrics.queue_room.set(capacity)
        self._queue: list[QueueItem] = []
        self._tokens = 0  # of the texts in the queue, about
        self._virtual_time = 0
        self._arrivals = 0
        self._idle = 0
        self._pace = 0.0  # seconds per token of one thread, smoothed
        self._tidy = Tidying(every=TIDY)
        self._closed = False
        self._panics: OrderedDict[bytes, int] = OrderedDict()  # a text's digest -> how many
        self._change = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"answers-{n}", daemon=True)
            for n in range(threads)
        ]
        self._working = threads

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Texts in the queue."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """Whether a text would be taken now, and answered."""
        return not self._closed and self._working > 0 and self.waiting < self.capacity

    def close(self) -> None:
        """Take nothing more, answer what was taken, and return when all is answered."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def submit(self, queries: Sequence[Query]) -> Job:
        """Queue the texts of one request: all of them, or QueueFull, or DeadlyText."""
        if self._panics:
            for number, (text, _) in enumerate(queries):
                if self._panics.get(_digest(text), 0) >= DEADLY:
                    raise DeadlyText(number)
        job = Job(queries)
        sizes = [min(estimated_tokens(text), self.longest) for text, _ in queries]
        with self._change:
            if self._closed or not self._working or self.waiting + len(queries) > self.capacity:
                raise QueueFull
            tag = self._virtual_time
            for number, size in enumerate(sizes):
                tag += size
                heapq.heappush(self._queue, QueueItem(tag, self._arrivals, number, size, job))
            self._arrivals += 1
            self._tokens += sum(sizes)
            self.metrics.queue_texts.set(self.waiting)
            self._change.notify(len(self._threads))
        job.future.add_done_callback(self._drop)
        return job

    def _drop(self, future: Future[Job]) -> None:
        """A request that nobody waits for any more, or that has failed, leaves the queue."""
        if not future.cancelled() and future.exception() is None:
            return
        with self._change:
            self._queue = [item for item in self._queue if not item.job.future.done()]
            heapq.heapify(self._queue)
            self._tokens = sum(item.tokens for item in self._queue)
            self.metrics.queue_texts.set(self.waiting)

    def retry_after(self) -> int:
        """Seconds after which the queue will have room again, about."""
        seconds = math.ceil(self._tokens * self._pace / len(self._threads))
        return min(MAX_RETRY_AFTER, max(1, seconds))

    def _work(self) -> None:
        try:
            predictor = self.new_predictor()
            while batch := self._take():
                predictor = self._answer(predictor, batch)
                self._tidy()
        except BaseException:  # no predictor can be made any more
            log.critical("a thread that answers has ended", exc_info=True)
            self._leave()

    def _leave(self) -> None:
        """One thread fewer; with the last of them, what waits fails instead of waiting for ever."""
        with self._change:
            self._working -= 1
            left = [] if self._working else [item.job for item in self._queue]
        for job in left:
            job.fail(PredictionFailed("no thread is left to answer"))

    def _take(self) -> list[QueueItem]:
        """The texts whose turn it is; none when the queue is closed and empty."""
        with self._change:
            self._idle += 1
            while not self._queue and not self._closed:
                self._change.wait()
            batch = self._pop()
            self._idle -= 1
        now = time.perf_counter()
        for item in batch:
            item.job.begun = item.job.begun or now
        return batch

    def _pop(self) -> list[QueueItem]:
        # What waits is shared out between the threads that have nothing to do.
        budget = min(self.budget, max(MIN_SHARE, self._tokens // self._idle))
        batch: list[QueueItem] = []
        while self._queue and (not batch or self._queue[0].tokens <= budget):
            item = heapq.heappop(self._queue)
            self._tokens -= item.tokens
            self._virtual_time = max(self._virtual_time, item.finish_tag)
            batch.append(item)
            budget -= item.tokens
        self.metrics.queue_texts.set(self.waiting)
        return batch

    def _answer(self, predictor: Predictor, batch: Sequence[QueueItem]) -> Predictor:
        """Answer them, and give the predictor to go on with: after a panic it is a new one."""
        queries = [item.job.queries[item.number] for item in batch]
        began = time.perf_counter()
        try:
            answered = list(zip(batch, predictor(queries), strict=True))
            for _, answers in answered:
                _check_numbers(answers)
        except BaseException as error:  # a panic of the tokenizer is no Exception
            panic = not isinstance(error, Exception)
            if len(batch) == 1:
                log.exception("a text could not be answered")
                if panic:
                    self._remember(queries[0][0])
                batch[0].job.fail(PredictionFailed(f"{type(error).__name__}: {error}"))
            if panic:  # its locks may be held for ever
                predictor = self._renewed(batch)
            for item in batch if len(batch) > 1 else ():  # one text must not spoil the others'
                predictor = self._answer(predictor, [item])
            return predictor
        seconds = time.perf_counter() - began
        pace = seconds / sum(item.tokens for item in batch)
        with self._change:
            self._pace = 0.9 * self._pace + 0.1 * pace if self._pace else pace
        self.metrics.record_pass(len(batch), seconds)
        for item, answers in answered:
            item.job.settle(item.number, answers)
        return predictor

    def _renewed(self, batch: Sequence[QueueItem]) -> Predictor:
        try:
            return self.new_predictor()
        except BaseException:
            for item in batch:
                item.job.fail(PredictionFailed("no predictor can be made any more"))
            raise

    def _remember(self, text: Text) -> None:
        digest = _digest(text)
        with self._change:
            self._panics[digest] = self._panics.pop(digest, 0) + 1
            if len(self._panics) > REMEMBERED:
                self._panics.popitem(last=False)


def _check_numbers(answers: Answers) -> None:
    for task, answer in answers.items():
        if not answer.finite:
            raise ArithmeticError(f"task {task!r} answers {answer.number}")


def _digest(text: Text) -> bytes:
    return hashlib.sha256(repr(text).encode(errors="replace")).digest()


def estimated_tokens(text: Text) -> int:
    """About how many tokens a text has: a quarter of its bytes fits most languages."""
    parts = (text,) if isinstance(text, str) else text
    return 2 + sum(len(part.encode(errors="replace")) for part in parts) // 4
