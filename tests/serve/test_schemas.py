"""The OpenAPI schema says exactly what is accepted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import jsonschema_rs
import pytest
from pydantic import ValidationError
from pydantic_core import from_json

from bough.inference.torch_model import MultiTaskModel
from bough.recipe.tasks import Task
from bough.serve.schemas import INK, request_type, response_type
from bough.serve.settings import Limits
from tests import tiny
from tests.serving import JSON, Server, model, run, wild_bodies


def test_the_schema_is_true(server: Server, tmp_path: Path) -> None:
    """schemathesis makes bodies inside and outside the schema, and holds the server to it."""
    command = [
        sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
        "run", f"{server.url}/openapi.json", "--checks", "all", "--max-examples", "15",
        "--generation-deterministic", "--no-color", "--suppress-health-check", "all",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "Tested: 5" in done.stdout


@pytest.mark.parametrize("task", [None, "mood", "near"])
def test_the_schema_tells_what_is_accepted(task: str | None) -> None:
    """Of a model of all tasks, of one on texts, of one on pairs."""

    async def work(client: httpx.AsyncClient) -> None:
        operation = (await client.get("/openapi.json")).json()["paths"]["/predict"]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        validator = jsonschema_rs.validator_for(schema)
        seen = set()
        for body in wild_bodies(500, seed=3):
            with suppress(ValueError):
                right = validator.is_valid(from_json(body))
                response = await client.post("/predict", content=body, headers=JSON)
                if response.status_code != 413:
                    assert right == (response.status_code == 200), (body[:200], response.text)
                    seen.add(right)
        assert seen == {True, False}

    run(work, model() if task is None else model().only(task))


def test_many_wrong_keys_are_one_error() -> None:
    """An error for each would cost a large body's server seconds, and hundreds of megabytes."""
    body = json.dumps(dict.fromkeys(map(str, range(1000)), 1))
    with pytest.raises(ValidationError) as caught:
        request_type(model().tasks, Limits()).model_validate_json(body)
    assert caught.value.error_count() == 1


def test_the_schema_and_the_server_agree_what_is_blank() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    assert [c for c in characters if bool(re.search(INK, c)) != bool(c.strip())] == []
    assert r"\s" not in INK  # which JavaScript, Python and Rust read differently

    async def work(client: httpx.AsyncClient) -> None:
        for text, status in (("\ufeff", 200), ("\x85", 422), ("\x1c", 422), ("\u3000", 422)):
            response = await client.post("/predict", json={"texts": [text]})
            assert response.status_code == status, text

    run(work)


def test_spans_are_answered_as_the_schema_says() -> None:
    tasks = {"names": Task(kind="tag", text="text", labels=("wood", "colour"), pooling="words")}
    source = tiny.encoder(layers=2)
    network = tiny.network("full", tasks, source, stir=0.3)
    made = MultiTaskModel(network, source.tokenizer, 40)
    text = "the old tree is green and the leaf was not bright"

    async def work(client: httpx.AsyncClient) -> None:
        body = {"texts": [text, "who"], "abstain": 0.3}
        answer = await client.post("/predict", json=body)
        assert answer.status_code == 200
        said = answer.json()
        response_type(tasks).model_validate(said)
        expected = made.predict([text, "who"], abstain=0.3)
        assert said["answers"] == [{"names": own["names"].plain()} for own in expected]
        assert (await client.get("/tasks")).json()["tasks"]["names"]["kind"] == "tag"

    run(work, made)


def test_labels_that_are_left_out_are_in_the_schema() -> None:
    tasks = {"topics": tiny.task(kind="multilabel", labels=("wood", "colour", "age"))}
    source = tiny.encoder(layers=2)
    made = MultiTaskModel(tiny.network("full", tasks, source, stir=0.3), source.tokenizer, 40)
    texts = [" ".join(tiny.WORDS[n : n + 3]) for n in range(20)]

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/predict", json={"texts": texts, "abstain": 0.7})
        assert answer.status_code == 200
        said = answer.json()
        response_type(tasks).model_validate(said)
        expected = [own["topics"] for own in made.predict(texts, abstain=0.7)]
        assert [own["topics"]["labels"] for own in said["answers"]] == [
            list(own.labels or ()) for own in expected
        ]
        assert any("abstained" in own["topics"] for own in said["answers"])

    run(work, made)
