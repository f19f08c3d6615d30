"""The worst examples are the worst, and shown only with the texts that were judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from bough.comparison.compare import Comparison, compare
from bough.reports.hard_examples import (
    PER_KIND,
    WORST,
    _misses,
    _worst_marked,
    read_texts,
    worst,
)
from bough.reports.page import page
from bough.runs.predictions import Answers
from bough.spans.schemes import Span
from bough.spans.words import as_objects
from tests import simulated
from tests.html_page import Page


def test_worst_examples_are_the_worst(comparison: Comparison) -> None:
    texts, missing = read_texts(comparison)
    assert missing == []
    for name in comparison.metrics:
        examples = worst(comparison, name, texts)
        first = examples[:WORST]
        assert [e.miss for e in first] == sorted((e.miss for e in first), reverse=True)
        assert all(e.texts == texts[name][e.number] for e in examples)
        assert all(e.runs == 8 for e in examples)
    kinds = [(e.truth, e.answer) for e in worst(comparison, "sst", texts)]
    assert len(set(kinds)) > 5  # some of every confusion, for the matrix to lead to
    assert all(kinds[WORST:].count(kind) <= PER_KIND for kind in kinds)


def test_an_answer_is_the_commonest_wrong_one(comparison: Comparison) -> None:
    """Beside the truth, "wrong in 2 of 4 runs" would read as an error."""
    runs = comparison.answers["full", "sst"] + comparison.answers["separate", "sst"]
    truth = np.zeros_like(runs[0].truth)
    said = np.zeros((4, len(truth)), int)
    said[:2, 0] = 1  # a tie
    said[3, 1] = 2  # one is wrong
    said[:, 2] = [1, 2, 2, 0]
    told = tuple(replace(run, truth=truth, said=own) for run, own in zip(runs, said, strict=True))
    made = worst(replace(comparison, answers={("full", "sst"): told}), "sst", {})
    answers = {e.number: (e.truth, e.answer, e.wrong) for e in made if e.number < 3 or not e.wrong}
    assert [answers[row] for row in range(3)] == [("0", "1", 2), ("0", "2", 1), ("0", "2", 3)]
    assert {answer for row, answer in answers.items() if row > 2} <= {("0", "0", 0)}


def test_spans_that_were_missed_are_no_tie() -> None:
    """No spans at all are an answer, too, and a wrong one."""
    span = (Span(0, 4, "x"),)
    blank = Answers("tag", ["1"], as_objects([span]), as_objects([()]), (), None, as_objects([()]))
    right = replace(blank, said=blank.truth)
    (example,) = _worst_marked([right, blank], [("tree",)])
    assert (example.truth, example.answer, example.wrong) == ("tree (x)", "no spans", 1)


def test_of_several_labels_the_commonest_wrong_answer() -> None:
    truth, labels = np.array([[1, 0], [1, 0]]), ("a", "b")
    said = np.array([[[1, 0], [0, 0]], [[0, 1], [1, 0]], [[1, 0], [1, 0]], [[1, 0], [1, 0]]])
    runs = [Answers("multilabel", ["1", "2"], truth, own, labels, own * 1.0) for own in said]
    assert _misses(runs[0], runs, said)[2] == [("a", "b"), ("a", "none")]
    assert _misses(runs[3], runs[3:], said[3:])[2] == [("a", "a"), ("a", "a")]


def test_gone_data_is_told(tmp_path: Path) -> None:
    source = simulated.data(tmp_path / "data", 30)
    run = simulated.run(tmp_path / "run", simulated.recipe(source, "full", 0))
    file = source / "sst-dev.tsv"
    file.write_text(file.read_text().replace("tree", "bush"))
    (source / "sts-dev.tsv").unlink()
    words = Page(page(compare([run]))).words
    assert "sst: texts not shown, the data has changed since it was judged" in words
    assert "sts: texts not shown (" in words
    assert "(text not at hand)" in words
