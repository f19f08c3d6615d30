"""Which encoders saw Quora's duplicates, and which tasks' scores are flattered by it."""

from __future__ import annotations

from typing import Any

import pytest

from bough.recipe.quora_caveat import caveats, contaminated, saw_quora


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("minilm", True),
        ("sentence-transformers/all-MiniLM-L6-v2", True),
        ("hub/models--sentence-transformers--all-mpnet-base-v2/snapshots/0", True),
        ("paraphrase-MiniLM-L6-v2", True),
        ("sentence-transformers/all-distilroberta-v1", True),
        ("quora-distilbert-base", True),
        ("nreimers/MiniLM-L6-H384-uncased", False),
        ("google-bert/bert-base-uncased", False),
        ("me/small-mpnet", False),
    ],
)
def test_who_saw_quora(name: str, seen: bool) -> None:
    assert saw_quora([name]) == seen
    assert saw_quora(["my/model", name]) == seen


def test_a_task_is_known_by_its_name_or_by_its_data() -> None:
    def data(source: str) -> dict[str, Any]:
        return {"dev": {"rows": 9, "source": source}}

    facts = {"saw_quora": True, "data": {"same": data("Quora-dev.csv"), "like": data("sts.csv")}}
    assert contaminated(["same", "QQP", "like", "bare"], facts) == ["QQP", "same"]
    assert contaminated(["same", "QQP"], facts | {"saw_quora": False}) == []
    assert contaminated(["quora"], {}) == []
    (sentence,) = caveats(["same", "like"], facts)
    assert sentence.startswith("The score of same is not clean")
