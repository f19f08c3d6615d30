"""A server that is told to end while clients ask."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPException

from bough.inference.model import Text
from bough.serve.microbatch import Answers
from tests.serving import Client, Server, in_threads, same


def end_under_load(
    server: Server, texts: Sequence[Text], truth: Sequence[Answers], **headers: str
) -> None:
    """Eight clients ask on and on; what was sent before the signal is answered."""
    moment = 0.0
    answered, after = [0] * 8, [0] * 8
    lost: list[tuple[float, str]] = []

    def work(number: int) -> None:
        with closing(Client(server.url, **headers)) as client:
            while True:
                began = time.monotonic()
                try:
                    response = client.ask(texts)
                except (OSError, HTTPException) as error:
                    lost.append((began, repr(error)))
                    return
                assert response.status in (200, 503), response.json
                if response.status == 200:
                    assert all(map(same, response.json["answers"], truth))
                    answered[number] += 1
                    after[number] += moment > began

    def stop() -> None:
        nonlocal moment
        while sum(answered) < 20:
            time.sleep(0.01)
        moment = time.monotonic()
        server.process.send_signal(signal.SIGTERM)

    in_threads(9, lambda number: stop() if number == 8 else work(number))
    assert len(lost) == 8
    assert sum(after) > 0
    # What was sent well before the signal had arrived, so none of it may be lost.
    assert all(began > moment - 0.1 for began, _ in lost), (moment, lost)
