"""What the server tells about its tasks."""

from __future__ import annotations

import httpx

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
