"""The worst examples are the worst, and shown only with the texts that were judged."""

from __future__ import annotations

from pathlib import Path

from bough.comparison.compare import Comparison, compare
from bough.reports.hard_examples import PER_KIND, WORST, read_texts, worst
from bough.reports.page import page
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
