"""Costs, fronts, what is told beside the scores, and the command; bad input is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bough.cli.main import app
from bough.comparison.compare import Comparison, compare, pareto
from bough.errors import UserError
from tests import simulated


def test_time_and_memory_relative_scores(comparison: Comparison) -> None:
    full, separate = comparison.variants
    raw = comparison.scores["full"]["raw"].value
    expected = raw
    for key in ("training_seconds", "bytes_with_optimiser"):
        expected *= separate.cost[key] / full.cost[key]
    assert comparison.relative(full, "printed") == pytest.approx(expected)
    steady = raw
    for key in ("step_seconds", "bytes_to_serve"):
        steady *= separate.cost[key] / full.cost[key]
    assert comparison.relative(full, "steady") == pytest.approx(steady)
    assert comparison.relative(separate, "steady") == pytest.approx(
        comparison.scores["separate"]["raw"].value
    )


def test_the_front() -> None:
    points = {"a": (1.0, 0.5), "b": (2.0, 0.7), "c": (2.0, 0.6), "d": (3.0, 0.7), "e": (0.5, 0.1)}
    assert pareto(points) == ("e", "a", "b")
    assert pareto({"a": (1.0, 1.0), "b": (1.0, 1.0)}) == ("a", "b")


def test_one_task_has_fronts_too(survey: Path) -> None:
    comparison = compare(survey, tasks=["sts"])  # one path needs no list
    assert comparison.fronts["bytes_to_serve"] == ("full",)  # better, and smaller
    full, separate = comparison.variants
    cost = np.prod([separate.cost[k] / full.cost[k] for k in ("step_seconds", "bytes_to_serve")])
    assert comparison.relative(full, "steady") == pytest.approx(
        comparison.scores["full"]["sts"].value * cost
    )


def test_fronts_are_of_those_that_have_every_task(make: simulated.Make) -> None:
    runs = [make("a", "full"), make("b", "separate"), make("c", "full", tasks=("sst", "sts"))]
    comparison = compare(runs, tasks=["sst", "quora"])
    both = {"full, tasks=sst+quora+sts", "separate, tasks=sst+quora+sts"}
    assert all(front and set(front) <= both for front in comparison.fronts.values())
    assert set(comparison.fronts) == {"bytes_to_serve", "step_seconds"}
    assert comparison.relative(comparison.variants[2], "steady") is None


def test_unequal_budgets_are_told(make: simulated.Make) -> None:
    comparison = compare([make("a", "full"), make("b", "separate", steps=400)])
    assert any("budgets differ" in note for note in comparison.notes)


def test_other_classes_are_refused(make: simulated.Make) -> None:
    more, turned = '["0","1","2","3","4","5"]', '["4","3","2","1","0"]'
    first, same = make("a"), "only runs on the same data can be compared"
    text = simulated.refused([first, make("b", "separate", **{"tasks.sst.labels": more})])
    assert text.startswith("separate, sst.labels=")
    assert f"predictions/sst-dev.csv has other labels than the other runs'; {same}" in text
    assert same in simulated.refused([first, make("c", "separate", **{"tasks.sst.labels": turned})])


def test_broken_files(make: simulated.Make) -> None:
    run = make("a")
    file = run / "predictions" / "sst-dev.csv"
    whole = file.read_text()
    for broken, words in (
        (whole[: len(whole) // 2] + "\n1,2", "cut short"),
        ("", "not readable"),
        (whole.replace("p(0)", "p(x)"), "not a predictions file"),
        (whole.replace("label", "lable", 1), "no labels to judge by"),
    ):
        file.write_text(broken)
        assert words in simulated.refused([run])
    file.write_text(whole)
    log = run / "metrics.jsonl"
    log.write_text("{broken\n" + log.read_text())
    assert "line 1: not JSON" in simulated.refused([run])
    log.unlink()
    (run / "cost.json").write_text("{")
    assert "cost.json: not JSON" in simulated.refused([run])


def test_data_that_the_encoder_saw_is_told(make: simulated.Make) -> None:
    """By the task's name, or by where its rows came from."""
    run = make("a")
    assert [n.split(":")[0] for n in compare(run).notes if "Quora" in n] == ["quora"]
    file = run / "model" / "config.json"
    config = json.loads(file.read_text())
    config["facts"]["data"] = {"sst": {"dev": {"rows": 40, "source": "glue/QQP"}}}
    file.write_text(json.dumps(config))
    assert [n.split(":")[0] for n in compare(run).notes if "Quora" in n] == ["sst", "quora"]
    config["facts"]["saw_quora"] = False
    file.write_text(json.dumps(config))
    assert not any("Quora" in note for note in compare(run).notes)


def test_json_is_plain(comparison: Comparison) -> None:
    told = json.loads(json.dumps(comparison.as_dict()))
    assert told["baseline"] == "separate"
    assert told["variants"][0]["scores"]["sts"]["difference"]["holm"] < 0.05
    assert set(told["fronts"]) == {"bytes_to_serve", "step_seconds"}


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    for name, words in (("no/t.md", "no: no such folder to write t.md to"), (".", "is a folder")):
        wrong = CliRunner().invoke(app, ["compare", "nowhere", "--markdown", str(tmp_path / name)])
        assert isinstance(wrong.exception, UserError), "which is exit code 2"
        assert words in str(wrong.exception)
        assert not wrong.output


def test_the_command_line(survey: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    out = run(app, ["compare", str(survey), "--markdown", str(tmp_path / "t.md")])
    assert out.exit_code == 0
    assert "sts gains" in out.stdout.replace("\n", " ")
    assert (tmp_path / "t.md").read_text().startswith("**")
    told = run(app, ["compare", str(survey), "--json", "--baseline", "full"])
    assert json.loads(told.stdout)["baseline"] == "full"
    assert isinstance(run(app, ["compare", str(tmp_path / "none")]).exception, UserError)


def test_rows_that_repeat_others_are_told(make: simulated.Make, tmp_path: Path) -> None:
    file = tmp_path / "data" / "sts-dev.tsv"
    head, *rows = file.read_text().splitlines()
    file.write_text("\n".join([head, *rows, *rows[:3]]) + "\n")
    notes = compare(make("a")).notes
    assert [note.split(";")[0] for note in notes if "repeat" in note] == [
        "3 of 43 dev rows of sts repeat the texts of others"
    ]


def test_means_that_are_the_same_are_one_column(make: simulated.Make) -> None:
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in (0, 1)]
    assert compare(runs).columns()[-2:] == ["raw", "normalised"]
    both = compare(runs, tasks=["sst", "quora"])
    assert both.columns() == ["sst", "quora", "normalised"]
    assert "raw" not in str(both).split("TM:")[0]
