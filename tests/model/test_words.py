"""Tasks that read words: their rows of the pass, next to tasks that read the text as a whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from bough.data.examples import Examples
from bough.data.packing import collate
from bough.errors import UserError
from bough.model.attention import Layout
from bough.model.losses import loss
from bough.model.network import Network
from bough.model.transformer import Layer
from bough.plan.plan import Cell
from bough.recipe.tasks import Task
from bough.spans.schemes import Span
from tests import tiny

TEXTS: list[tuple[str, ...]] = [("the old tree is green",), ("who",), ("a bough, the leaf",)]
SPANS = [(Span(4, 12, "x"),), (), (Span(2, 7, "y"), Span(9, 17, "x"))]
LABELS = ("x", "y")
PLANS = ["full", "separate", "split@1", "late:SI", "pal:4", "lora:2", "frozen"]


def names(**settings) -> Task:
    return Task(kind="tag", text="text", labels=LABELS, pooling="words", dropout=0.0, **settings)


def examples(tasks: dict[str, Task]) -> dict[str, Examples]:
    words = tiny.tokenizer()
    rows: dict[str, list[Any]] = {"classify": [0, 1, 2], "tag": SPANS}
    return {
        name: Examples.of(task, tiny.rows(TEXTS, rows[task.kind]), words, 40)
        for name, task in tasks.items()
    }


def network(plan: str, tasks: dict[str, Task]) -> Network:
    return tiny.network(plan, tasks, stir=0.1)


def test_targets_are_the_tags_of_the_words() -> None:
    made = examples({"names": names()})["names"]
    words = made.words
    assert words is not None
    # "bough," is one word of this tokenizer, which knows blanks only: its comma is not apart.
    assert words.counts.tolist() == [5, 1, 4]
    assert made.targets is not None
    assert made.targets.tolist() == [[0, 1, 2, 0, 0], [0, -1, -1, -1, -1], [0, 3, 1, 2, -1]]
    assert made.out_of_reach == 1  # without the comma
    assert made.truth is not None
    assert made.truth.tolist() == SPANS
    two = made.sample(2)
    assert two.targets is not None
    assert len(two.targets) == len(two) == len(two.truth if two.truth is not None else ()) == 2


def test_the_head_reads_the_first_token_of_each_word() -> None:
    tasks = {"names": names()}
    model = network("full", tasks)
    source = examples(tasks)
    batch = collate(source, {"names": torch.tensor([2, 0]).numpy()})
    outputs = model(batch.pack, batch.index)["names"]
    assert outputs.shape == (9, 5)
    states = model.cells["embeddings/all"](*batch.pack.tokens.unbind(1), None)
    for layer in (m for m in model.cells.values() if isinstance(m, Layer)):
        states = layer(states, Layout(batch.pack.lengths), None)
    head = model.cells[Cell("head", "names").key]
    parts = states.split(batch.pack.lengths)
    rows = torch.cat([part[list(w)] for part, w in zip(parts, batch.pack.words, strict=True)])
    torch.testing.assert_close(outputs, head([rows], [], None)[0])


@pytest.mark.parametrize("plan", PLANS)
def test_together_with_tasks_on_the_whole_text_all_answer_as_alone(plan: str) -> None:
    tasks = {
        "names": names(),
        "first": tiny.task(pooling="cls"),
        "mean": tiny.task(pooling="mean"),
        "pooled": tiny.task(),
    }
    model = network(plan, tasks)
    pack = collate(examples({"names": names()}), {"names": torch.arange(3).numpy()}).pack
    index = torch.arange(3)[:, None]
    with torch.no_grad():
        together = model(pack, dict.fromkeys(tasks, index))
        for name in tasks:
            alone = model(pack, {name: index})[name]
            torch.testing.assert_close(together[name], alone, rtol=1e-5, atol=1e-6)
    assert together["names"].shape == (10, 5)


def test_what_they_share_is_computed_once() -> None:
    tasks = {"names": names(), "first": tiny.task(pooling="cls")}
    model = network("full", tasks)
    pack = collate(examples({"names": names()}), {"names": torch.arange(3).numpy()}).pack
    rows = []
    for layer in (m for m in model.cells.values() if isinstance(m, Layer)):
        layer.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    with torch.no_grad():
        model(pack, dict.fromkeys(tasks, torch.arange(3)[:, None]))
    assert rows == [sum(pack.lengths)] * 2


def test_the_loss_is_each_texts_mean_over_its_words() -> None:
    source = examples({"names": names()})["names"]
    assert source.targets is not None
    outputs = torch.randn(10, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    by_text = [
        F.cross_entropy(part, tags[tags >= 0].long())
        for part, tags in zip(outputs.split([5, 1, 4]), source.targets, strict=True)
    ]
    torch.testing.assert_close(loss(names(), outputs, source.targets), sum(by_text) / 3)
    first = loss(names(), outputs[:6], source.targets[:2]) * 2
    last = loss(names(), outputs[6:], source.targets[2:])
    torch.testing.assert_close(loss(names(), outputs, source.targets), (first + last) / 3)
    with pytest.raises(ValueError, match="do not fit"):
        loss(names(), outputs[:9], source.targets)
    nothing = torch.full((2, 3), -1, dtype=torch.int16)
    assert loss(names(), outputs[:0], nothing).item() == 0


def test_a_text_without_words_has_no_rows() -> None:
    tasks = {"names": names()}
    model = network("full", tasks)
    rows = tiny.rows([("the leaf",), (" ",)], [(), ()])
    source = Examples.of(tasks["names"], rows, tiny.tokenizer(), 40)
    batch = collate({"names": source}, {"names": torch.arange(2).numpy()})
    assert model(batch.pack, batch.index)["names"].shape == (2, 5)


def test_word_by_word_feeds_nobody() -> None:
    tasks = {"names": names(), "first": tiny.task()}
    for feed in ("feed:names>first", "feed:first>names"):
        with pytest.raises(UserError, match="task 'names' answers word by word"):
            network(feed, tasks)
