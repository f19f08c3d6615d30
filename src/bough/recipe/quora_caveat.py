"""Contamination: what an encoder saw before, so that a score on such data flatters it.

One case is known: sentence encoders that were trained on Quora's duplicate questions, among them
MiniLM. Needs no torch: comparisons and cards ask it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Names of sentence encoders whose training data had Quora's duplicates, by how they begin.
_ENCODERS = re.compile(
    r"(?-i:^minilm$)|(^|[/-])((all|paraphrase|multi-qa)-"
    r"(minilm|mpnet|roberta|distil|albert|xlm|multilingual)|quora-)",
    re.IGNORECASE,
)
_DATA = re.compile(r"quora|qqp", re.IGNORECASE)


def saw_quora(names: Iterable[str]) -> bool:
    """Whether an encoder was trained on Quora's duplicates, by any name that it goes by."""
    return any(_ENCODERS.search(name) for name in names)


def contaminated(tasks: Iterable[str], facts: Mapping[str, Any]) -> list[str]:
    """Those of a model's tasks that the encoder has seen, by their names and their data's."""
    if not facts.get("saw_quora"):
        return []
    data = facts.get("data", {})
    sources = {name: [split["source"] for split in data.get(name, {}).values()] for name in tasks}
    return sorted(name for name, own in sources.items() if any(map(_DATA.search, [name, *own])))


def caveats(tasks: Iterable[str], facts: Mapping[str, Any]) -> list[str]:
    """A sentence on each of these tasks."""
    return [
        f"The score of {task} is not clean: the encoder saw Quora's duplicate questions when it "
        "was pretrained."
        for task in contaminated(tasks, facts)
    ]
