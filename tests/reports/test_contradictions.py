"""Two tasks of one model that measure alike, and where they part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bough.comparison.compare import Comparison, compare
from bough.inference.torch_model import MultiTaskModel
from bough.reports import contradictions as contradictions_module
from bough.reports.contradictions import Question, between, contradictions
from bough.reports.hard_examples import read_texts
from bough.reports.page import page
from tests import simulated, tiny
from tests.html_page import Page


def model_of_equal_heads(run: Path, shift: float) -> None:
    """In place of the run's own: both heads on pairs read the same thing, but for a shift."""
    tasks = {
        "sst": tiny.task(labels=("0", "1", "2", "3", "4")),
        "quora": tiny.task(labels=("0", "1"), joint=True),
        "sts": tiny.task(number=True, labels=None, joint=True),
    }
    network = tiny.network("full", tasks, stir=0.5)
    with torch.no_grad():
        state = network.state_dict()
        for key, value in state.items():
            if "head" in key and "quora" in key:
                shifted = value + shift if value.numel() == 1 else value
                state[key.replace("quora", "sts")].copy_(shifted)
    (run / "model" / "config.json").unlink()
    MultiTaskModel(network, tiny.tokenizer(), 40).save(run / "model")


def test_tasks_that_agree(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 40)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    model_of_equal_heads(run, 0)
    comparison = compare([run])
    asked = contradictions(comparison, read_texts(comparison)[0])
    assert asked is not None
    assert asked.why_not == ""
    assert asked.pairs[0].tasks == ("quora", "sts")
    assert asked.pairs[0].correlation > 0.99
    assert asked.pairs[0].apart == 0  # one score for both is never far from itself
    assert asked.pairs[0].asked == 80


def test_pairs_from_all_of_a_file_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = simulated.data(tmp_path / "data", 150)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    comparison = compare([run])
    texts = read_texts(comparison)[0]
    asked: list[Question] = []

    def ask(run: object, names: object, questions: list[Question]) -> list[object]:
        asked.extend(questions)
        return []

    monkeypatch.setattr(contradictions_module, "_ask", ask)
    contradictions(comparison, texts)
    for name in ("quora", "sts"):
        rows = [texts[name].index(q.texts) for q in asked if q.source == name]
        assert len(set(rows)) == 100
        assert np.diff(rows).max() == 2
        assert rows[-1] >= 148


def test_tasks_that_contradict_each_other_are_shown_with_the_truth(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 60)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    model_of_equal_heads(run, -0.6)
    comparison = compare([run])
    texts, _ = read_texts(comparison)
    asked = contradictions(comparison, texts)
    assert asked is not None
    (pair,) = asked.pairs
    assert pair.apart > 0
    for one in pair.worst:
        question = one.question
        row = texts[question.source].index(question.texts)
        answers = comparison.answers["full", question.source][0]
        assert float(question.truth) == pytest.approx(float(answers.truth[row]))
        assert one.gap > 0.5
    words = Page(page(comparison)).words
    assert f"on {pair.apart} pairs they are more than half of the scale apart" in words
    assert pair.worst[0].answers[0] in words


def test_the_gap_is_measured_along_the_correlation() -> None:
    a = np.linspace(0, 1, 20)
    b = np.where(a > 0.99, 0.15, a)
    questions = [Question(("x", "y"), "quora", "1")] * 20
    words = [("a", "b")] * 20
    for other in (b, 1 - b):
        pair = between(("p", "q"), a, other, questions, words)
        assert pair is not None
        assert pair.apart == 1
        assert pair.worst[0].gap == pytest.approx(0.85)
    assert between(("p", "q"), a, np.abs(a - 0.5), questions, words) is None
    assert between(("p", "q"), a, np.zeros(20), questions, words) is None


def test_why_there_are_none(comparison: Comparison) -> None:
    texts, _ = read_texts(comparison)
    asked = contradictions(comparison, texts)
    assert asked is not None
    assert asked.why_not == "the run's weights are not there any more"
    assert asked.pairs == []
    del texts["sts"]
    asked = contradictions(comparison, texts)
    assert asked is not None
    assert asked.why_not == "fewer than two tasks judge pairs of texts that are at hand"
