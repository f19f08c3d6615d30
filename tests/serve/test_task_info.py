"""What the server tells about its tasks."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx

from bough.inference.load import load_torch
from bough.serve.task_info import describe
from tests.serving import model, run


def test_tasks_tell_what_is_computed_once() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        info = (await client.get("/tasks")).json()
        assert info["plan"] == "split@1, feed:mood>same"
        assert info["tasks"]["near"] == {
            "kind": "regress", "texts": 2, "range": [0, 5], "reads": [],
        }  # fmt: skip
        assert info["tasks"]["same"]["reads"] == ["mood"]
        assert info["work"]["text"] == {
            "tasks": ["mood"],
            "steps": 4,
            "alone": 4,
            "parts": [{"tasks": ["mood"], "places": ["embeddings", "layer 1-2", "pooler"]}],
        }
        # The joint task and what it reads; the twin task goes its own way, text by text.
        joint, twin = info["work"]["pair"], info["work"]["twins"]
        assert joint["parts"][0] == {"tasks": ["mood", "same"], "places": ["embeddings", "layer 1"]}
        assert (joint["steps"], twin["tasks"], twin["steps"]) == (6, ["near"], 4)
        assert info["examples"] == ["mine", ["one", "two"]]

    run(work, model("split@1, feed:mood>same", examples=["mine", ("one", "two")]))


def test_examples_fit_the_tasks() -> None:
    """Without examples of its own, a model gets those of ours that a task of it can judge."""
    forms = [type(example) for example in describe(model(), "a")["examples"]]
    assert forms == [str, str, list, list]
    for name, kind in (("mood", str), ("near", list)):
        examples = describe(model().only(name), "a")["examples"]
        assert {type(example) for example in examples} == {kind}


def test_dev_rows_are_shown_only_where_they_may_be() -> None:
    own = model(examples=["mine"])
    assert describe(own, "a")["examples"] == ["mine"]
    assert "mine" not in describe(own, "a", show_examples=False)["examples"]

    async def work(client: httpx.AsyncClient) -> None:
        assert "mine" not in (await client.get("/tasks")).text

    run(work, own, show_examples=False)


def test_the_weights_are_named(tmp_path: Path) -> None:
    folder = model().save(tmp_path / "model")
    weights = (folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(weights).hexdigest()

    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.get("/tasks")).json()["weights"] == digest

    run(work, load_torch(folder))
    assert digest in (folder / "README.md").read_text(encoding="utf-8")
