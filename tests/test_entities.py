"""A tag task from end to end, beside a task on whole texts: learned, judged, asked, compared."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score

import bough
from bough.data.drafting.init_recipe import init
from bough.inference.predict_file import answer_file
from bough.inference.torch_model import MultiTaskModel
from bough.recipe.recipe import schema
from bough.runs.predictions import Answers
from bough.runs.run_dir import Run
from bough.spans.schemes import Scheme, Span
from bough.spans.words import words_of
from tests import folders

NAMES = ("Ann", "Bob", "Eve", "Tom")
PLACES = ("Rome", "New York", "Oslo", "Bad Ems")


def conll(rows: int) -> str:
    """Who was where, in as many texts; every third names no one."""
    blocks = []
    for i in range(rows):
        name, place = NAMES[i % 4], PLACES[(i // 4) % 4].split()
        words = [("it", "O"), ("rained", "O"), (".", "O")]
        if i % 3:
            tags = ["B-place", "I-place"][: len(place)]
            words = [(name, "B-person"), ("was", "O"), ("in", "O")]
            words += [*zip(place, tags, strict=True), (".", "O")]
        blocks.append("\n".join(f"{word}\t{tag}" for word, tag in words))
    return "\n\n".join(blocks) + "\n"


@pytest.fixture(scope="module")
def recipe(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rows = folders.data(tmp_path_factory.mktemp("rows"))
    (rows / "who-train.conll").write_text(conll(64), encoding="utf-8")
    (rows / "who-dev.conll").write_text(conll(24), encoding="utf-8")
    made = folders.recipe(tiny_folder, ("sentiment",), rows, epochs=12, lr=5e-3, heads="fitted")
    made["tasks"]["who"] = {"kind": "tag", "train": "who-train.conll", "dev": "who-dev.conll"}
    return made


@pytest.fixture(scope="module")
def runs(recipe: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        bough.train({**recipe, "training": {**recipe["training"], "seed": seed}, "plan": plan},
                    out=folder / f"{plan}-{seed}")
        for plan in ("full", "split@1")
        for seed in (0, 1)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def model(runs: list[Run]) -> MultiTaskModel:
    loaded = bough.load(runs[0])
    assert isinstance(loaded, MultiTaskModel)
    return loaded


def test_it_is_learned_and_scored_as_seqeval_scores(runs: list[Run]) -> None:
    scores = runs[0].scores["dev"]["tasks"]["who"]
    assert scores["metric"] == "entity_f1"
    assert scores["entity_f1"] > 0.8
    answers = Answers.read(runs[0], "who", "dev", "tag")
    texts = [block.split("\n") for block in conll(24).strip().split("\n\n")]
    scheme = Scheme("bio", ("person", "place"))
    sides: list[list[list[str]]] = []
    for spans in (answers.truth, answers.said):
        side = []
        for lines, own in zip(texts, spans, strict=True):
            bounds = words_of(" ".join(line.split("\t")[0] for line in lines)).tolist()
            starts, ends = ([edge[i] for edge in bounds] for i in (0, 1))
            by_word = [
                s._replace(start=starts.index(s.start), end=ends.index(s.end) + 1) for s in own
            ]
            side.append([scheme.tags[tag] for tag in scheme.of_spans(by_word, len(bounds))])
        sides.append(side)
    truth, said = sides
    assert truth == [[line.split("\t")[1] for line in lines] for lines in texts]
    assert scores["entity_f1"] == pytest.approx(f1_score(truth, said))


def test_answers_are_spans_of_the_text(model: MultiTaskModel) -> None:
    text = "  Ann was in New York, 🌳!"
    answer = model.predict(text, tasks=["who"])["who"]
    assert answer.spans
    for span in answer.spans:
        assert text[span.start : span.end] == span.text
        assert span.label in ("person", "place")
        assert 0 < span.score <= 1
    together = model.predict(text)
    assert set(together) == {"sentiment", "who"}
    assert together["who"] == answer
    assert model.predict(text, tasks=["who"], abstain=1.0)["who"].abstained
    with pytest.raises(bough.UserError, match="task 'who' reads a vector per word"):
        model.encode(text, task="who")
    assert model.encode(text).shape == (model.network.shape.width,)


def test_files_are_answered(model: MultiTaskModel, runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "ask.conll").write_text("Ann\nwas\nin\nRome\n\nno\n", encoding="utf-8")
    (tmp_path / "ask.jsonl").write_text('{"text": "Ann was in Rome"}\n', encoding="utf-8")
    expected = model.predict("Ann was in Rome", tasks="who")["who"].plain()
    answer_file(runs[0].folder, str(tmp_path / "ask.conll"), tmp_path / "out.jsonl")
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert first["who"] == expected
    assert second["who"].keys() == {"spans"}
    answer_file(runs[0].folder, str(tmp_path / "ask.jsonl"), tmp_path / "out.csv")
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert json.loads(row["who"]) == expected["spans"]
    assert bough.columns([model.predict("Ann was in Rome")])["who"] == [row["who"]]


def test_it_is_judged_label_by_label(runs: list[Run], model: MultiTaskModel) -> None:
    found = bough.evaluate(runs[0], tasks=["who"])
    assert found.scores["tasks"]["who"]["entity_f1"] == pytest.approx(
        runs[0].scores["dev"]["tasks"]["who"]["entity_f1"]
    )
    assert set(found.spans["who"]) == {"person", "place"}
    assert found.as_dict()["tasks"]["who"]["spans"] == found.spans["who"]
    rows = [{"text": "Ann was in Rome", "spans": [[0, 3, "person"], [11, 15, "place"]]}]
    assert bough.evaluate(model, rows, tasks=["who"]).spans["who"]["person"]["spans"] == 1


def test_runs_are_compared_and_reported(runs: list[Run], tmp_path: Path) -> None:
    compared = bough.compare([run.folder for run in runs])
    scores = compared.scores[compared.variants[0].label]["who"]
    own = [run.scores["dev"]["tasks"]["who"]["entity_f1"] for run in compared.variants[0].runs]
    assert scores.value == pytest.approx(np.mean(own), abs=1e-6)
    page = bough.report([run.folder for run in runs], out=tmp_path / "report.html")
    text = Path(page).read_text(encoding="utf-8")
    assert "label by label" in text
    assert "Worst-predicted rows of who" in text


def test_an_exported_graph_answers_the_same(
    runs: list[Run], model: MultiTaskModel, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    from bough.export.onnx_export import write_onnx

    loaded = bough.load(write_onnx(runs[0].folder, tmp_path / "onnx"))
    texts = ["Ann was in New York.", "it rained", "Bob was in Oslo", "x"]
    for ours, theirs in zip(model.predict(texts), loaded.predict(texts), strict=True):
        assert theirs["sentiment"].label == ours["sentiment"].label
        mine, others = ours["who"].spans or (), theirs["who"].spans or ()
        assert [(s.start, s.end, s.label) for s in others] == [
            (s.start, s.end, s.label) for s in mine
        ]
        assert [s.score for s in others] == pytest.approx([s.score for s in mine], abs=1e-4)
    judged = bough.evaluate(loaded, _dev(runs[0]), tasks=["who"])
    assert judged.scores["tasks"]["who"]["entity_f1"] == pytest.approx(
        runs[0].scores["dev"]["tasks"]["who"]["entity_f1"]
    )


def _dev(run: Run) -> str:
    recipe = run.recipe()
    return str(recipe.root / str(recipe.tasks["who"].dev))


def test_transformers_has_no_such_head(runs: list[Run], tmp_path: Path) -> None:
    from bough.export.transformers_export import write_transformers

    with pytest.raises(bough.UserError, match="a tag task has no form in transformers"):
        write_transformers(runs[0].folder, tmp_path / "out", task="who")
    assert "AutoModel" in write_transformers(runs[0].folder, tmp_path / "trunk", "who", trunk=True)


def test_the_card_tells_of_spans(runs: list[Run]) -> None:
    card = (runs[0].model / "README.md").read_text(encoding="utf-8")
    assert "token-classification" in card
    assert "spans with one of 2: person, place" in card


def test_a_frozen_trunk_keeps_its_states(recipe: dict[str, Any], tmp_path: Path) -> None:
    few = {**recipe["training"], "epochs": 2}
    run = bough.train({**recipe, "plan": "frozen", "training": few}, out=tmp_path / "frozen")
    assert run.scores["dev"]["tasks"]["who"]["entity_f1"] > 0.2


def test_init_recognises_conll_and_spans(tmp_path: Path) -> None:
    (tmp_path / "who.conll").write_text(conll(40), encoding="utf-8")
    rows = [{"text": f"{n} was in Rome", "spans": [[0, 3, "person"]]} for n in NAMES * 5]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "people.jsonl").write_text(lines, encoding="utf-8")
    written = init([tmp_path / "who.conll", tmp_path / "people.jsonl"], tmp_path / "recipe.yaml")
    tasks = bough.Recipe.read(tmp_path / "recipe.yaml").tasks
    assert {
        name: (task.kind, task.text, task.label, task.labels) for name, task in tasks.items()
    } == {
        "who": ("tag", "text", "spans", ("person", "place")),
        "people": ("tag", "text", "spans", ("person",)),
    }
    assert any("spans with one of 2 labels" in line for line in written.lines())


def test_spans_and_classes_of_one_table(tiny_folder: Path, tmp_path: Path) -> None:
    """One pass serves both; a row may lack either."""
    rows: list[dict[str, Any]] = []
    for i in range(48):
        name = NAMES[i % 4]
        row: dict[str, Any] = {
            "text": f" {name} was here",
            "spans": [[1, 4, "person"]],
            "mood": "good",
        }
        if i % 2:
            row = {"text": "it rained", "spans": [], "mood": "bad"}
        if i % 5 == 0:
            row["spans" if i % 10 else "mood"] = None
        rows.append(row)
    shared = {"text": "text", "train": rows, "dev": rows[:20]}
    recipe = folders.recipe(tiny_folder, (), epochs=8, lr=5e-3)
    recipe["tasks"] = {
        "mood": {"kind": "classify", "label": "mood", **shared},
        "who": {"kind": "tag", "label": "spans", **shared},
    }
    run = bough.train(recipe, out=tmp_path / "run")
    scores = run.scores["dev"]["tasks"]
    assert (scores["mood"]["rows"], scores["who"]["rows"]) == (18, 18)
    assert scores["who"]["entity_f1"] > 0.5
    found = Answers.read(run, "who", "dev", "tag")
    assert {span for spans in found.truth for span in spans} == {Span(1, 4, "person")}
    answer = bough.load(run).predict("Ann was here")
    assert answer["mood"].label
    assert answer["who"].spans is not None


def test_the_schema_lets_a_tag_task_leave_its_text_out() -> None:
    task = schema()["$defs"]["Task"]
    assert task["required"] == ["kind"]
    assert task["else"] == {"required": ["text"]}
