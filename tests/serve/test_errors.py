"""Refusals say what is wrong with a body."""

from __future__ import annotations

import httpx
import pytest

from bough.serve.settings import Limits
from tests.serving import JSON, ONE, run


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b" ", 400, "the body is empty; send an object like"),
        (b"{'texts': 1}", 400, "the body is not JSON (key must be a string at line 1 column 2)"),
        (b'"\xff\xfe"', 400, "the body is not JSON (invalid unicode code point at line 1"),
        (b"[" * 100_000, 400, "the body is not JSON (recursion limit exceeded at line 1"),
        (b'["a"]', 422, "the body is a list; expected an object like"),
        (b"{}", 422, 'texts is missing; expected a list like {"texts": ["A fine film."]}'),
        (b'{"texts": []}', 422, "texts is an empty list; expected a list like"),
        (b'{"texts": "a tree"}', 422, "texts is a text; expected a list like"),
        (b'{"text": ["a"]}', 422, "no key 'text' in a request (texts, tasks, abstain); did"),
        (b'{"texts": [null]}', 422, "text 1 is null; expected a text, or a pair like"),
        (b'{"texts": ["a", 1e400]}', 422, "text 2 is a number; expected a text, or a pair like"),
        (b'{"texts": [["a"]]}', 422, "text 1 is a list of 1; expected a text, or a pair like"),
        (b'{"texts": [["a", {}]]}', 422, "text 1 is a list of other things; expected a text"),
        (b'{"texts": ["a", " \\n"]}', 422, "text 2 is empty; there is nothing to judge"),
        (b'{"texts": [["a", ""]]}', 422, "text 1 is empty; there is nothing to judge"),
        (b'{"texts": ["a"], "tasks": []}', 422, "tasks is an empty list; name tasks, or leave"),
        (b'{"texts": ["a"], "tasks": "mood"}', 422, "tasks is a text; expected a list of names"),
        (b'{"texts": ["a"], "tasks": ["moot"]}', 422, "no task 'moot' in this model (mood, same"),
        (b'{"texts": ["a"], "tasks": ["same"]}', 422, "text 1: task 'same' judges a pair, this is"),
        (b'{"texts": [["a", "b"]], "tasks": ["mood"]}', 422, "text 1: task 'mood' judges one text"),
        (b'{"texts": ["aaaaaaaaaaaaaaaaaaaaa"]}', 422, "text 1 has 21 characters; at most 20 are"),
        (b'{"texts": ["a", "a", "a", "a"]}', 422, "4 texts in one request; send at most 3 at"),
        (b'{"texts": ["' + b"a" * 300_000 + b'"]}', 413, "the body is larger than 200,000 bytes;"),
    ],
)  # fmt: skip
def test_refusals_say_what_is_wrong(body: bytes, status: int, sentence: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        response = await client.post("/predict", content=body, headers=JSON)
        assert response.status_code == status
        assert list(response.json()) == ["error"]
        assert response.json()["error"].startswith(sentence)
        assert len(response.json()["error"]) < 250
        assert (await client.post("/predict", json=ONE)).status_code == 200

    run(work, limits=Limits(body=200_000, texts=3, characters=20))
