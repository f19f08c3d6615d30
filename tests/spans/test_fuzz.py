"""1,000 damaged CoNLL files and span cells: each is read, or refused in one clear sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bough.data import checked_rows
from bough.errors import UserError
from bough.recipe.tasks import Task

GOOD = "Ann\tB-person\nwas\tO\nin\tO\nNew\tB-place\nYork\tI-place\n.\tO\n\nit\tO\nrained\tO\n"
ROWS: list[dict[str, Any]] = [
    {"text": "Ann was in New York.", "spans": [[0, 3, "person"], [11, 19, "place"]]},
    {"text": "it rained", "spans": []},
    {"text": "Bob 🌳 too", "spans": [{"start": 0, "end": 3, "label": "person"}]},
]
PARTS = [
    "", "\n", "\t", " ", "\r", "O", "B-", "I-place", "E-person", "B-\ud800", "-DOCSTART-", "#",
    "\ufeff", "\u2028", "\x00", "\x1a", "😀", "[", "{", '"', "null", "true", "-1", "1e9", "NaN",
    "[[", '"start"', "\udc80", '{"start": 0, "end": 99999999999999999999, "label": "x"}',
    "[0, 3, 7]",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, -1, 0, 3, 10**30, 0.5, float("nan"), "", "x", "[]", "[[0,3,\"a\"]]", [], [[]], {},
    [0, 3, "a"], [[0, 3, "a"]], [[2, 5, "a"], [4, 9, "b"]], [{"start": 1}], [None], ["O", "B-a"],
    {"entities": [[0, 1, "z"]]}, ["it", "rained"], [["it"]], "\ud800", [[0, 3, "\ud800"]],
]  # fmt: skip
CASES = 1000


def damaged(text: str, chance: random.Random) -> bytes:
    """At one to three places: something taken out, put in, doubled or moved."""
    for _ in range(chance.randint(1, 3)):
        a, b = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        piece = chance.choice([chance.choice(PARTS), text[a:b], ""])
        text = text[:a] + piece + text[chance.choice([a, b]) :]
    data = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.1:
        at = chance.randrange(len(data) + 1)
        data = data[:at] + bytes([chance.randrange(256)]) + data[at:]
    return data


def changed(chance: random.Random) -> str:
    rows: list[Any] = json.loads(json.dumps(ROWS))
    for _ in range(chance.randint(1, 3)):
        row = chance.choice(rows)
        if isinstance(row, dict):
            row[chance.choice(["text", "spans", "id"])] = chance.choice(VALUES)
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def read(file: Path) -> str:
    """What came of it, under both policies: the sentence of a refusal, or nothing."""
    task = Task(kind="tag", text="text", train=file.name, dev=file.name)
    said = ""
    for policy in ("skip", "error"):
        try:
            fitted, rows = checked_rows.load("t", task, root=file.parent, policy=policy)
        except UserError as error:
            said = str(error)
            continue
        for part in rows.values():
            assert len(part) == len(part.labels or ()) > 0
            for (text,), spans in zip(part.texts, part.labels or (), strict=True):
                assert list(spans) == sorted(spans)
                for span in spans:
                    assert 0 <= span.start < span.end <= len(text)
                    assert span.label in (fitted.labels or ())
            checked_rows.digest(part).encode()
    return said


@pytest.mark.parametrize("form", ["conll", "jsonl", "damaged jsonl"])
def test_whatever_is_in_a_file_it_is_read_or_refused_in_a_sentence(
    form: str, tmp_path: Path
) -> None:
    refused = 0
    for number in range(CASES // 2 if form == "conll" else CASES // 4):
        chance = random.Random(f"{form} {number}")
        file = tmp_path / f"x.{form.split()[-1]}"
        if form == "conll":
            file.write_bytes(damaged(GOOD, chance))
        elif form == "jsonl":
            file.write_bytes(changed(chance).encode("utf-8", "surrogatepass"))
        else:
            good = "".join(json.dumps(row) + "\n" for row in ROWS)
            file.write_bytes(damaged(good, chance))
        said = read(file)
        refused += bool(said)
        if said:
            assert "\n" not in said, said
            assert file.name in said, said
    assert refused > 20
