"""What the server counts, for Prometheus; each app has a registry of its own.

Several processes count into files of one folder, by prometheus_client's own means, and each can
tell what all have counted, those that have ended, too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess, values

METHODS = ("GET", "HEAD", "OPTIONS", "POST")  # any other is counted under one name
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where processes count together, if they do


@contextmanager
def counted_together() -> Iterator[Callable[[int], None]]:
    """Processes started within count together; gives what is to be told of each that has ended."""
    before = values.ValueClass
    with tempfile.TemporaryDirectory(prefix="bough-metrics-") as folder:
        os.environ[FOLDER] = folder
        values.ValueClass = values.get_value_class()  # chosen when it was imported, before this
        try:
            yield lambda process: multiprocess.mark_process_dead(process, folder)
        finally:
            values.ValueClass = before
            del os.environ[FOLDER]


class Metrics:
    """Counted since the start, by any thread."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.told = registry  # what /metrics tells of
        if FOLDER in os.environ:
            self.told = CollectorRegistry()
            multiprocess.MultiProcessCollector(self.told)
        labels = ("method", "path", "status")
        self.requests = Counter(
            "bough_requests", "Requests by method, path and status.", labels, registry=registry
        )
        self.request_seconds = Histogram(
            "bough_request_seconds",
            "Time from a POST to its answer.",
            buckets=SECONDS,
            registry=registry,
        )
        self.pass_texts = Histogram(
            "bough_pass_texts", "Texts answered in one pass.", buckets=TEXTS, registry=registry
        )
        self.busy_seconds = Counter(
            "bough_busy_seconds", "Time that threads spent in passes.", registry=registry
        )
        self.queue_texts = Gauge(
            "bough_queue_texts",
            "Texts that wait.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.queue_room = Gauge(
            "bough_queue_room",
            "Texts that may wait; more are refused with 503.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def record_request(self, method: str, path: str, status: int, seconds: float) -> None:
        self.requests.labels(method if method in METHODS else "other", path, status).inc()
        if (method, path) == ("POST", "/predict"):
            self.request_seconds.observe(seconds)

    def record_pass(self, texts: int, seconds: float) -> None:
        self.pass_texts.observe(texts)
        self.busy_seconds.inc(seconds)
