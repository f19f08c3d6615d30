"""What the server counts, in the text form that Prometheus reads.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

METHODS = ("GET", "HEAD", "OPTIONS", "POST")  # any other is counted under one name
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """How many values were at most so large."""

    def __init__(self, bounds: Sequence[float]):
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {total}"


@dataclass
class Meters:
    """Counted since the start. Requests are noted by the loop, passes under the queue's lock."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    passes: Histogram = field(default_factory=lambda: Histogram(TEXTS))
    busy: float = 0.0

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        self.requests[method if method in METHODS else "other", path, status] += 1
        if (method, path) == ("POST", "/predict"):
            self.seconds.add(seconds)

    def passed(self, texts: int, seconds: float) -> None:
        self.passes.add(texts)
        self.busy += seconds

    def text(self, waiting: int, room: int) -> str:
        lines = [
            *_head("bough_requests_total", "counter", "Requests by method, path and status."),
            *(
                f'bough_requests_total{{method="{method}",path="{path}",status="{status}"}} {count}'
                for (method, path, status), count in sorted(self.requests.items())
            ),
            *_head("bough_request_seconds", "histogram", "Time from a POST to its answer."),
            *self.seconds.lines("bough_request_seconds"),
            *_head("bough_pass_texts", "histogram", "Texts answered in one pass of the model."),
            *self.passes.lines("bough_pass_texts"),
            *_head("bough_busy_seconds_total", "counter", "Time that threads spent in passes."),
            f"bough_busy_seconds_total {self.busy:.6f}",
            *_head("bough_queue_texts", "gauge", "Texts that wait."),
            f"bough_queue_texts {waiting}",
            *_head("bough_queue_room", "gauge", "Texts that may wait; more are refused with 503."),
            f"bough_queue_room {room}",
        ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> tuple[str, str]:
    return f"# HELP {name} {words}", f"# TYPE {name} {kind}"
