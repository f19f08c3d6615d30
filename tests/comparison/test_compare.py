"""Runs become variants, variants a table, the table a verdict; bad input one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bough import formatting
from bough.cli.main import app
from bough.comparison import tables
from bough.comparison.compare import Comparison, compare, pareto
from bough.comparison.groups import _labels, find_runs
from bough.comparison.scores import Difference
from bough.comparison.verdict import MARGIN, verdict
from bough.errors import UserError
from bough.scoring import statistics
from tests import simulated

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plans and three seeds; sharing makes sts much better and quora much worse."""
    folder = tmp_path_factory.mktemp("survey")
    source = simulated.data(folder / "data")
    for plan, skill in (("separate", {}), ("full", {"sts": 1.0, "quora": -1.0})):
        for seed in range(3):
            told = simulated.recipe(source, plan, seed)
            simulated.run(folder / "runs" / f"{plan}-{seed}", told, skill)
    return folder


@pytest.fixture(scope="module")
def found(survey: Path) -> Comparison:
    return compare([survey])


@pytest.fixture
def make(tmp_path: Path) -> Make:
    source = simulated.data(tmp_path / "data", 40)

    def one(name: str, plan: str = "full", seed: int = 0, **settings: object) -> Path:
        kept = {k: settings.pop(k) for k in ("finished", "steps") if k in settings}
        told = simulated.recipe(source, plan, seed, **settings)
        return simulated.run(tmp_path / name, told, **kept)  # type: ignore[arg-type]

    return one


def mistake(paths: Sequence[Path], **settings: object) -> str:
    with pytest.raises(UserError) as caught:
        compare(paths, **settings)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


# --- the table -----------------------------------------------------------------------------------


def test_runs_that_differ_by_seed_are_one_variant(found: Comparison) -> None:
    assert [(v.label, v.seeds) for v in found.variants] == [
        ("full", (0, 1, 2)),
        ("separate", (0, 1, 2)),
    ]
    assert found.baseline.label == "separate"  # it shares least
    assert found.columns() == ["sst", "quora", "sts", "raw", "normalised"]


def test_scores_are_those_of_the_runs(found: Comparison) -> None:
    for v in found.variants:
        for name, metric in found.metrics.items():
            told = [run.scores["dev"]["tasks"][name][metric] for run in v.runs]
            score = found.scores[v.label][name]
            assert score.runs == pytest.approx(tuple(told), abs=1e-5)
            assert score.value == pytest.approx(np.mean(told), abs=1e-5)
            assert score.interval[0] < score.value < score.interval[1]
        own = found.scores[v.label]
        sst, quora, sts = (own[name].value for name in found.metrics)
        assert own["raw"].value == pytest.approx((sst + quora + sts) / 3)
        assert own["normalised"].value == pytest.approx((sst + quora + (sts + 1) / 2) / 3)


def test_differences_that_are_there_are_found(found: Comparison) -> None:
    full = found.scores["full"]
    sts, quora = full["sts"].difference, full["quora"].difference
    assert sts is not None
    assert quora is not None
    assert sts.real
    assert sts.value > 0
    assert quora.real
    assert quora.value < 0
    assert all(score.difference is None for score in found.scores["separate"].values())


def test_a_difference_is_of_the_same_rows(found: Comparison) -> None:
    d, own = found.scores["full"]["sst"].difference, found.scores
    assert d is not None
    assert d.value == pytest.approx(own["full"]["sst"].value - own["separate"]["sst"].value)
    wide = own["full"]["sst"].interval
    assert d.half < wide[1] - wide[0]  # pairing takes the hardness of the rows away


def test_time_and_memory_relative_scores(found: Comparison) -> None:
    full, separate = found.variants
    raw = found.scores["full"]["raw"].value
    expected = raw
    for key in ("training_seconds", "bytes_with_optimiser"):
        expected *= separate.cost[key] / full.cost[key]
    assert found.relative(full, "printed") == pytest.approx(expected)
    steady = raw
    for key in ("step_seconds", "bytes_to_serve"):
        steady *= separate.cost[key] / full.cost[key]
    assert found.relative(full, "steady") == pytest.approx(steady)
    assert found.relative(separate, "steady") == pytest.approx(
        found.scores["separate"]["raw"].value
    )


def test_the_front() -> None:
    points = {"a": (1.0, 0.5), "b": (2.0, 0.7), "c": (2.0, 0.6), "d": (3.0, 0.7), "e": (0.5, 0.1)}
    assert pareto(points) == ("e", "a", "b")
    assert pareto({"a": (1.0, 1.0), "b": (1.0, 1.0)}) == ("a", "b")


def test_one_task_has_fronts_too(survey: Path) -> None:
    found = compare([survey], tasks=["sts"])
    assert found.fronts["bytes_to_serve"] == ("full",)  # better, and smaller
    full, separate = found.variants
    cost = np.prod([separate.cost[k] / full.cost[k] for k in ("step_seconds", "bytes_to_serve")])
    assert found.relative(full, "steady") == pytest.approx(found.scores["full"]["sts"].value * cost)


def test_fronts_are_of_those_that_have_every_task(make: Make) -> None:
    runs = [make("a", "full"), make("b", "separate"), make("c", "full", tasks=("sst", "sts"))]
    found = compare(runs, tasks=["sst", "quora"])
    both = {"full, tasks=sst+quora+sts", "separate, tasks=sst+quora+sts"}
    assert all(front and set(front) <= both for front in found.fronts.values())
    assert set(found.fronts) == {"bytes_to_serve", "step_seconds"}
    assert found.relative(found.variants[2], "steady") is None


def test_the_verdict_in_plain_words(found: Comparison) -> None:
    said = verdict(found)
    assert said.tasks["sts"].startswith("sts gains .")
    assert "with full (against separate)." in said.tasks["sts"]
    assert said.tasks["quora"].startswith("quora loses .")
    assert "no difference from separate that 3 seeds can show" in said.tasks["sst"]
    assert any("memory to serve −67 %" in text for text in said.costs)
    assert any("trained on Quora" in note for note in said.notes)


def headline(found: Comparison, **apart: tuple[float, float]) -> str:
    """With these intervals in place of full's; other columns are well above the baseline."""
    scores = {}
    for name, score in found.scores["full"].items():
        low, high = apart.get(name, (0.001, 0.011))
        middle, half = (low + high) / 2, (high - low) / 2
        # Not real: the correction for many comparisons makes "no loss" no easier.
        made = Difference(middle, (low, high), half, 0.03, 3, holm=0.2, bh=0.1)
        scores[name] = replace(score, difference=made)
    return verdict(replace(found, scores={**found.scores, "full": scores})).headline


def test_no_loss_is_said_only_where_a_large_one_is_ruled_out(found: Comparison) -> None:
    assert headline(found, sts=(-0.0111, 0.03)) == (
        "full serves all tasks with 67 % less memory and loses at most .012 on any task (3 seeds, "
        "against separate)."
    )
    assert "loses nothing on any task" in headline(found)
    assert headline(found, sts=(-0.073, 0.001), sst=(-0.05, 0.05)) == (
        "full saves 67 % of memory; with 3 seeds a loss of up to .073 on sts cannot be ruled out "
        "(normalised score +.006 ± .005 against separate)."
    )
    edge = MARGIN
    assert "loses at most" in headline(found, sst=(1e-4 - edge, 0.1))
    assert "cannot be ruled out" in headline(found, sst=(-edge, 0.1))
    assert "loses at most" not in headline(found, normalised=(-0.03, 0.1))


def test_a_loss_that_is_there_is_not_called_possible(found: Comparison) -> None:
    assert headline(found, sts=(-0.073, -0.03)).startswith("No variant beats separate")


def test_fewer_rows_make_no_bolder_claim(make: Make) -> None:
    """Two like plans on 40 rows: nothing shows, so nothing is ruled out."""
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in range(3)]
    assert "cannot be ruled out" in verdict(compare(runs)).headline


def test_what_shows_in_the_mean_alone_is_said(found: Comparison) -> None:
    """Three small losses can be one that shows."""
    seen = Difference(-0.03, (-0.04, -0.02), 0.01, 0.001, 3, holm=0.01, bh=0.01)
    hidden = replace(seen, holm=0.4)
    full = {
        n: replace(score, difference=seen if n == "normalised" else hidden)
        for n, score in found.scores["full"].items()
    }
    said = verdict(replace(found, scores={**found.scores, "full": full}))
    assert "normalised loses .030 ± .010 with full" in said.tasks["normalised"]
    quiet = {n: replace(score, difference=hidden) for n, score in full.items()}
    told = verdict(replace(found, scores={**found.scores, "full": quiet}))
    assert set(told.tasks) == set(found.metrics)


def test_no_interval_is_wider_than_its_metric(make: Make) -> None:
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in (0, 1)]
    for name, score in compare(runs).scores["full"].items():
        assert score.difference is not None
        most = {"sts": 2, "raw": 4 / 3}.get(name, 1)
        assert max(map(abs, score.difference.interval)) <= most + 1e-9


def test_two_seeds_are_an_anecdote(make: Make) -> None:
    runs = [make(f"{p}-{s}", p, s) for p in ("full", "separate") for s in (0, 1)]
    said = verdict(compare(runs))
    assert said.headline.startswith("An anecdote, not a finding (2 seeds per variant)")
    assert not any("Anecdote" in text for text in said.tasks.values()), "it has been said"


def test_only_pairs_of_few_seeds_are_anecdotes(survey: Path, tmp_path: Path) -> None:
    """A survey looked at while it runs: some variants are done, some have begun."""
    source = survey / "data"
    begun = [
        simulated.run(tmp_path / f"{plan}-{seed}", simulated.recipe(source, plan, seed))
        for plan, many in (("split@3", 2), *((f"split@{n}", 1) for n in (1, 2, 4, 5)))
        for seed in range(many)
    ]
    alone, said = (verdict(compare(runs)) for runs in ([survey], [survey, *begun]))
    assert said.headline == (
        f"{alone.headline} Not counted, with fewer than 3 seeds: split@3, split@1, split@2, "
        "split@4 and split@5."
    )
    first, two, one = said.tasks["quora"].split("Anecdote ")
    assert first.startswith("quora loses .")
    assert first.endswith("with full (against separate). ")
    assert two.startswith("(2 seeds): quora: no difference from separate that 2 seeds can show (sp")
    assert one.startswith("(one seed): quora: ")
    assert all(f" with split@{n}" in one for n in (1, 2, 4, 5))


def test_a_baseline_of_one_seed_makes_anecdotes_of_all(make: Make) -> None:
    runs = [make("base", "separate"), *(make(f"full-{s}", "full", s) for s in range(3))]
    found = compare(runs)
    d = found.scores["full"]["sst"].difference
    assert d is not None
    assert d.seeds == 1
    assert verdict(found).headline.startswith(
        "An anecdote, not a finding (fewer than 3 seeds on a side): "
    )


def test_one_seed_says_nothing_about_the_next(make: Make) -> None:
    found = compare([make("a", "full"), make("b", "separate")])
    assert found.scores["full"]["sst"].difference is not None
    assert found.scores["full"]["sst"].difference.p is None
    assert "one seed says nothing about the next" in verdict(found).tasks["sst"]


def test_one_variant_has_nothing_to_be_compared_with(make: Make) -> None:
    found = compare([make("a", seed=0), make("b", seed=1)])
    assert "nothing to compare it with" in verdict(found).headline
    assert found.fronts == {}
    assert "differences from" not in tables.markdown(found)


def test_the_foot_tells_of_nothing_that_is_not_there(make: Make, found: Comparison) -> None:
    alone, other = make("a", "full"), make("b", "separate")
    one = tables.foot(compare([alone]))
    assert "new examples" in one
    assert not any(word in one for word in ("new seeds", "Holm", "TM", "±"))
    both = tables.foot(compare([alone, other]))
    assert "TM" in both
    assert "Holm" not in both
    every = tables.foot(found)
    assert all(word in every for word in ("new seeds", "Holm", "TM", "±"))


def test_labels_tell_what_differs(make: Make) -> None:
    runs = [
        make("a", "full", **{"training.lr": 1e-4}),
        make("b", "full", **{"training.lr": 2e-5}),
        make("c", "split@3", **{"training.lr": 1e-4}),
    ]
    found = compare(runs)
    labels = [v.label for v in found.variants]
    assert labels == ["full, lr=0.0001", "full, lr=2e-05", "split@3, lr=0.0001"]
    assert compare(runs, baseline="split@3").baseline.label == "split@3, lr=0.0001"
    assert "several variants have that plan" in mistake(runs, baseline="full")


def test_keys_of_a_task_that_some_lack_tell_the_others_apart(make: Make) -> None:
    runs = [
        make("a", "full", **{"tasks.quora.weight": 2.0}),
        make("b", "full", **{"tasks.quora.weight": 5.0}),
        make("c", "full", tasks=("sst", "sts")),
    ]
    found = compare(runs, tasks=["sst"])
    assert [v.label for v in found.variants] == [
        "quora.weight=2, tasks=sst+quora+sts",
        "quora.weight=5, tasks=sst+quora+sts",
        "tasks=sst+sts",
    ]
    for v in found.variants:
        own = v.runs[0].scores["dev"]["tasks"]["sst"]["accuracy"]
        assert found.scores[v.label]["sst"].value == pytest.approx(own)


def test_labels_are_never_shared(make: Make) -> None:
    close = [make(n, **{"training.lr": lr}) for n, lr in (("a", 1.0000001e-4), ("b", 1.0000002e-4))]
    assert [v.label for v in compare(close).variants] == ["lr=0.00010000001", "lr=0.00010000002"]
    flat = [{"plan": "full", "x.y": 1}, {"plan": "full", "x.y": "1"}, {"plan": "full"}]
    settings = [{"x.y": 1}, {"x.y": "1"}, {}]
    assert _labels(settings, flat) == ["y=1", 'y="1"', "full"]
    assert _labels([{}, {}, {}], flat) == ["full", "full (2)", "full (3)"]
    assert _labels([{"x.y": 1}, {}], [{"plan": "full", "x.y": 1, "z.y": 2}] * 2)[0] == "x.y=1"


def test_two_spellings_are_one_plan(make: Make) -> None:
    found = compare([make("a", "split@6", 0), make("b", "split@6/sst/quora/sts", 1)])
    assert len(found.variants) == 1


def test_a_moved_data_folder_is_no_variant(make: Make, tmp_path: Path) -> None:
    first = make("a", seed=0)
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    second = simulated.run(tmp_path / "b", simulated.recipe(tmp_path / "moved", "full", 1))
    assert len(compare([first, second]).variants) == 1


def test_different_seeds_are_compared_without_pairing(make: Make) -> None:
    runs = [make(f"a{s}", "full", s) for s in (0, 1, 2)]
    runs += [make(f"b{s}", "separate", s) for s in (3, 4, 5)]
    found = compare(runs)
    full, separate = (
        np.array([a.said == a.truth for a in found.answers[label, "sst"]], float)
        for label in ("full", "separate")
    )
    d = found.scores["full"]["sst"].difference
    assert d is not None
    apart = statistics.difference([full], (0, 1, 2), [separate], (3, 4, 5))
    paired = statistics.difference([full], (0, 1, 2), [separate], (0, 1, 2))
    assert (d.half, d.p) == (apart.half(), apart.p)
    assert d.half != paired.half()


def test_seeds_that_one_side_has_more_count(make: Make) -> None:
    runs = [make(f"a{s}", "full", s) for s in range(5)]
    found = compare(runs + [make(f"b{s}", "separate", s) for s in range(3)])
    for column in found.columns():
        full, separate = (found.scores[label][column] for label in ("full", "separate"))
        assert full.difference is not None
        assert full.difference.value == pytest.approx(full.value - separate.value)
        assert full.difference.seeds == 3


def test_tasks_that_only_some_runs_have(make: Make) -> None:
    runs = [make("a", "full"), make("b", "full", tasks=("sst", "sts"))]
    assert "name the tasks to compare with --tasks sst,quora,sts" in mistake(runs)
    found = compare(runs, tasks=["sst", "quora"], baseline="tasks=sst+quora+sts")
    one = found.scores["tasks=sst+sts"]
    assert set(one) == {"sst"}
    assert one["sst"].difference is not None
    assert verdict(found).tasks["sst"].startswith("sst: ")
    assert "task by task" in verdict(found).headline
    assert tables.markdown(found)


# --- notes and mistakes --------------------------------------------------------------------------


def test_unfinished_runs_are_named_and_left_out(make: Make) -> None:
    runs = [make("done"), make("cut-short", seed=1, finished=False)]
    assert any("cut-short" in note for note in compare(runs).notes)
    assert "none of the runs is finished" in mistake(runs[1:])


def test_the_same_run_twice_counts_once(make: Make) -> None:
    runs = [make("a"), make("b")]
    found = compare([runs[0], *runs])
    assert found.variants[0].seeds == (0,)
    assert any("the same recipe and seed" in note for note in found.notes)


def test_unequal_budgets_are_told(make: Make) -> None:
    found = compare([make("a", "full"), make("b", "separate", steps=400)])
    assert any("budgets differ" in note for note in found.notes)


def test_find_runs(survey: Path, tmp_path: Path) -> None:
    names = [run.name for run in find_runs([survey])]
    assert names[:3] == ["full-0", "full-1", "full-2"]
    assert [run.name for run in find_runs([survey / "runs"])] == names
    assert [run.name for run in find_runs([survey / "runs" / "full-1", survey])][:2] == names[1::-1]
    empty = tmp_path / "empty"
    (empty / "runs").mkdir(parents=True)
    for path, words in ((tmp_path / "none", "no such run directory"), (empty, "an empty survey")):
        with pytest.raises(UserError, match=words):
            find_runs([path])


def test_numbered_runs_come_in_order(make: Make, tmp_path: Path) -> None:
    for number in (10, 2, 1):
        make(f"all/run-{number}", seed=number)
    assert [run.name for run in find_runs([tmp_path / "all"])] == ["run-1", "run-2", "run-10"]


def test_different_data_is_refused(make: Make, tmp_path: Path) -> None:
    first = make("a")
    other = simulated.data(tmp_path / "other", 41)
    second = simulated.run(tmp_path / "b", simulated.recipe(other, "separate", 0))
    text = mistake([first, second])
    assert "different dev rows for task 'sst'" in text
    assert str(first) in text
    assert str(second) in text


def test_a_changed_training_set_is_refused(make: Make, tmp_path: Path) -> None:
    first = make("a")
    file = tmp_path / "data" / "sst-train.tsv"
    file.write_text(file.read_text() + "one more\t3\n")
    assert "different train rows for task 'sst'" in mistake([first, make("b", "separate")])


def test_a_learning_curve_can_be_compared(make: Make, tmp_path: Path) -> None:
    """The recipes say that the train rows differ, and how; a file that changed is no such thing."""
    runs = [make("a"), make("b", **{"tasks.sst.limit.train": 10})]
    assert [v.label for v in compare(runs).variants] == [
        "sst.limit.train=null",
        "sst.limit.train=10",
    ]
    file = tmp_path / "data" / "sst-train.tsv"
    file.write_text(file.read_text().replace("tree", "bush"))
    late = make("c", "separate", **{"tasks.sst.limit.train": 10})
    assert "different train rows for task 'sst'" in mistake([*runs, late])


def test_other_classes_are_refused(make: Make) -> None:
    more, turned = '["0","1","2","3","4","5"]', '["4","3","2","1","0"]'
    first, same = make("a"), "only runs on the same data can be compared"
    text = mistake([first, make("b", "separate", **{"tasks.sst.labels": more})])
    assert text.startswith("separate, sst.labels=")
    assert f"predictions/sst-dev.csv has other labels than the other runs'; {same}" in text
    assert same in mistake([first, make("c", "separate", **{"tasks.sst.labels": turned})])


def test_another_metric_is_another_task(make: Make) -> None:
    runs = [make("a"), make("b", **{"tasks.sst.metric": "f1"})]
    assert "these are different tasks" in mistake(runs)


def test_a_split_that_is_not_there(make: Make) -> None:
    assert "has no test rows; it has train, dev" in mistake([make("a")], split="test")


def test_broken_files(make: Make) -> None:
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
        assert words in mistake([run])
    file.write_text(whole)
    log = run / "metrics.jsonl"
    log.write_text("{broken\n" + log.read_text())
    assert "line 1: not JSON" in mistake([run])
    log.unlink()
    (run / "cost.json").write_text("{")
    assert "cost.json: not JSON" in mistake([run])


# --- what is printed -----------------------------------------------------------------------------


def test_json_is_plain(found: Comparison) -> None:
    told = json.loads(json.dumps(found.as_dict()))
    assert told["baseline"] == "separate"
    assert told["variants"][0]["scores"]["sts"]["difference"]["holm"] < 0.05
    assert set(told["fronts"]) == {"bytes_to_serve", "step_seconds"}


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    for name, words in (("no/t.md", "no: no such folder to write t.md to"), (".", "is a folder")):
        wrong = CliRunner().invoke(app, ["compare", "nowhere", "--markdown", str(tmp_path / name)])
        assert isinstance(wrong.exception, UserError), "which is exit code 2"
        assert words in str(wrong.exception)
        assert not wrong.output


def test_markdown_has_every_variant_and_is_escaped(found: Comparison) -> None:
    text = tables.markdown(found)
    assert "| separate (baseline) | 3 |" in text
    assert "Differences from separate:" in text
    assert tables._plain("a_b|c*") == r"a\_b\|c\*"


def test_the_command_line(survey: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    out = run(app, ["compare", str(survey), "--markdown", str(tmp_path / "t.md")])
    assert out.exit_code == 0
    assert "sts gains" in out.stdout.replace("\n", " ")
    assert (tmp_path / "t.md").read_text().startswith("**")
    told = run(app, ["compare", str(survey), "--json", "--baseline", "full"])
    assert json.loads(told.stdout)["baseline"] == "full"
    assert isinstance(run(app, ["compare", str(tmp_path / "none")]).exception, UserError)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5123, ".512"), (-0.0001, ".000"), (-0.25, "−.250"), (1.5, "1.500"), (0.9999, "1.000")],
)
def test_numbers(value: float, text: str) -> None:
    assert formatting.number(value) == text


def test_numbers_with_a_sign() -> None:
    assert formatting.number(0.012, signed=True) == "+.012"
    assert formatting.number(0.0, signed=True) == ".000"
    assert formatting.chance(1.0, 3) == "1"
    assert formatting.chance(0.0002, 3) == "< .001"
    assert formatting.chance(0.0002, 2) == "< .01"  # two seeds cannot tell more
    assert formatting.chance(0.02, 2) == ".020"
    assert formatting.size(90_863_644) == "86.7 MiB"
    assert formatting.seconds(0.121) == "121 ms"
