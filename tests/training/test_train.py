"""Training from outside: a run is its recipe and seed, nothing else; mistakes leave no trace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bough
from bough import demo
from bough.data.dataset import Data
from bough.data.prepared import table
from bough.errors import UserError
from bough.inference.evaluation import evaluate
from bough.recipe.recipe import Recipe
from bough.runs.console import Lines
from bough.training.train import new_folder, train
from tests import folders
from tests.finished import FEW, logged
from tests.same import assert_same_run


def test_a_run_is_its_recipe_and_seed(tiny_folder: Path, tmp_path: Path) -> None:
    runs = [
        train(folders.small(tiny_folder, **FEW, combine="pcgrad", seed=seed), tmp_path / name)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    files = [(run.model / "model.safetensors").read_bytes() for run in runs]
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_rows_from_the_disk_are_learned_from_alike(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held in memory, prepared by several processes, and found in the cache: one run."""
    recipe = folders.small(tiny_folder, **FEW)
    in_memory = train(recipe, tmp_path / "memory")
    monkeypatch.setattr(table, "LARGE", 0)
    monkeypatch.setattr(table, "SEVERAL", 0)
    monkeypatch.setenv("BOUGH_CACHE", str(tmp_path / "cache"))
    prepared = train(recipe, tmp_path / "prepared")
    monkeypatch.delattr(table, "read_parts")
    found = train(recipe, tmp_path / "found")
    for run in (prepared, found):
        assert_same_run(in_memory, run)
        assert run.environment["data"] == in_memory.environment["data"]


def test_the_public_function_can_be_called_again_and_again(
    tiny_folder: Path, tmp_path: Path
) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",), **FEW)
    for name in ("a", "b"):  # the room of the same name must not take its place
        run = bough.train(recipe, out=tmp_path / name)
        assert bough.load(run.folder).predict("Well.")["sentiment"].label
    with pytest.raises(UserError, match="finished"):
        bough.resume(tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoder": "no/such/encoder/at/all"}, "there is no such folder"),
        ({"plan": "split@9"}, "9"),
        ({"device": "cuda"}, "set it to cpu"),
        ({"data": "/nowhere"}, "data: no such folder"),
        ({"training": {"sampling": "each2"}}, "did you mean 'each'"),
        ({"training": {"combine": "pcgard"}}, "did you mean 'pcgrad'"),
        ({"training": {"weighting": "famoo"}}, "did you mean 'famo'"),
    ],
)
def test_mistakes_leave_no_trace(
    change: dict[str, Any], said: str, tiny_folder: Path, tmp_path: Path
) -> None:
    if "device" in change and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(UserError, match=said) as caught:
        train(folders.small(tiny_folder) | change, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_runs_classes_are_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    """A file that has changed since, or is gone, does not give the model's classes other names."""
    rows = folders.data(tmp_path / "rows")
    run = train(folders.recipe(tiny_folder, rows=rows, **FEW), tmp_path / "run")
    told = evaluate(run.folder).scores
    file = rows / "sentiment-train.csv"
    file.write_text(file.read_text() + "9,a new row,aaa\n")
    assert evaluate(run.folder).scores == told
    file.unlink()
    assert evaluate(run.folder).scores == told
    assert Recipe.read(run.recipe_file).tasks["sentiment"].labels


def test_eval_says_when_the_rows_are_others(tiny_folder: Path, tmp_path: Path) -> None:
    rows = folders.data(tmp_path / "rows")
    run = train(folders.recipe(tiny_folder, rows=rows, **FEW), tmp_path / "run")
    said: list[str] = []
    evaluate(run.folder, say=said.append)
    assert not any("judged on" in sentence for sentence in said)
    file = rows / "sentiment-dev.csv"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    evaluate(run.folder, say=said.append)
    (sentence,) = [sentence for sentence in said if "judged on" in sentence]
    assert "the dev rows of task 'sentiment'" in sentence
    assert "are not those that the run was judged on" in sentence


def test_where_a_run_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert new_folder("recipes/three.yaml") == Path("runs/three")
    os.makedirs("runs/three")
    assert new_folder("recipes/three.yaml") == Path("runs/three-2")
    assert new_folder({}) == Path("runs/run")


def test_cut_and_skipped_texts_are_told(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = folders.small(tiny_folder, **FEW) | {"max_length": 8, "rows": "skip"}
    bad = [{"text": "Fine.", "label": "positive"}, {"text": "", "label": "neutral"}]
    recipe["tasks"]["sentiment"] = recipe["tasks"]["sentiment"] | {"dev": bad}
    train(recipe, tmp_path / "run", display=Lines())
    told = capsys.readouterr().err
    assert "sequences cut to 8 tokens" in told
    assert "skipped 1 of 2 rows" in told
    assert "step 4/4" in told
    assert "raw" in told


@pytest.mark.real
@pytest.mark.skipif("BOUGH_DATA" not in os.environ, reason="BOUGH_DATA names no data")
def test_the_real_data(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(__file__).parents[2] / "recipes" / "cs224n.yaml"
    overrides = [
        f"encoder={tiny_folder}", "plan=split@1", "max_length=64", "training.steps=300",
        "training.lr=1e-2", "training.evaluate_rows=200", "training.log_every=1",
        "training.warmup=0", "training.sampling=each", "training.batch=16",
    ]  # fmt: skip
    run = train(file, tmp_path / "run", overrides, Lines())
    told = capsys.readouterr().err
    assert "quora-dev.csv: skipped 2 of 20,214 rows: line 2577" in told
    assert "line 14222" in told
    losses = [entry["loss"] for entry in logged(run)]
    for task in ("sst", "quora", "sts"):
        early, late = (np.mean([own[task] for own in part]) for part in (losses[:20], losses[-60:]))
        assert late < early, task
    assert run.scores["dev"]["tasks"]["quora"]["rows"] == 20_212


def test_the_demo_recipe_is_trainable(tiny_folder: Path, tmp_path: Path) -> None:
    overrides = [f"encoder={tiny_folder}", "training.steps=2", "training.evaluate_rows=8"]
    run = train(demo.recipe(), tmp_path / "run", overrides)
    assert set(run.scores["dev"]["tasks"]) == set(demo.SAMPLES)


def test_the_encoders_own_pooling(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said at the start, and written down as what it is, so that no other version reads it anew."""
    folder = shutil.copytree(tiny_folder, tmp_path / "encoder")
    folders.sentence_encoder(folder, {"pooling_mode_mean_tokens": True})
    recipe = folders.recipe(folder, rows=tiny_folder.parent / "rows", **FEW)
    recipe["tasks"]["questions"] = recipe["tasks"]["questions"] | {"pooling": "cls"}
    run = train(recipe, tmp_path / "run", display=Lines())
    assert "pooling: mean, as the encoder was made for (1_Pooling)\n" in capsys.readouterr().err
    wanted = {"sentiment": "mean", "questions": "cls", "similarity": "mean"}
    written = Recipe.read(run.recipe_file).tasks
    assert {name: task.pooling for name, task in written.items()} == wanted
    assert {name: task.pooling for name, task in bough.load(run).tasks.items()} == wanted
    assert "pooler" not in (run.folder / "plan.txt").read_text()
    card = (run.model / "README.md").read_text()
    assert "mean (sentiment, similarity), as the encoder was made for (1_Pooling); cls (" in card
    shutil.rmtree(folder / "1_Pooling")
    (folder / "modules.json").unlink()
    told = evaluate(run.folder).scores["tasks"]
    assert told == run.scores["dev"]["tasks"]


def test_few_pairs_are_read_apart_by_an_encoder_of_sentences(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said at the start, written down as what it is; the same as if the recipe had said so."""
    folder = shutil.copytree(tiny_folder, tmp_path / "encoder")
    folders.sentence_encoder(folder, {"pooling_mode_mean_tokens": True})
    recipe = folders.recipe(folder, rows=tiny_folder.parent / "rows", **FEW)
    recipe["tasks"]["questions"] = recipe["tasks"]["questions"] | {"pair": "joint"}
    run = train(recipe, tmp_path / "run", display=Lines())
    said = capsys.readouterr().err
    assert "task 'similarity': the texts of a pair are read apart (pair: twin)" in said
    assert "task 'questions': the texts" not in said
    written = Recipe.read(run.recipe_file).tasks
    assert (written["questions"].pair, written["similarity"].pair) == ("joint", "twin")
    answer = bough.load(run).predict(("A fine film.", "A good film."))
    assert set(answer) == {"questions", "similarity"}
    recipe["tasks"]["similarity"] = recipe["tasks"]["similarity"] | {"pair": "twin"}
    assert_same_run(train(recipe, tmp_path / "again"), run)


def test_many_pairs_are_read_as_one_sequence(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.recipe(tiny_folder, rows=tiny_folder.parent / "rows", **FEW)
    run = train(recipe, tmp_path / "run")  # no encoder of sentences: few rows change nothing
    written = Recipe.read(run.recipe_file).tasks
    assert (written["questions"].pair, written["similarity"].pair) == ("joint", "joint")


def test_pairs_that_stay_as_they_were_read_are_not_read_again(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tables would be prepared twice."""
    folder = shutil.copytree(tiny_folder, tmp_path / "encoder")
    folders.sentence_encoder(folder, {"pooling_mode_mean_tokens": True})
    recipe = folders.recipe(folder, ("similarity",), tiny_folder.parent / "rows", **FEW)
    gather, times = Data.gather, []

    def counted(*args: Any, **settings: Any) -> Data:
        times.append(1)
        return gather(*args, **settings)

    monkeypatch.setattr(Data, "gather", counted)
    for enough, readings in ((0, 1), (10**6, 2)):
        times.clear()
        monkeypatch.setattr("bough.plan.pair_reading.ENOUGH_ROWS", enough)
        train(recipe, tmp_path / f"run-{enough}")
        assert len(times) == readings


def test_a_pooling_that_cannot_be_had_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "encoder")
    folders.sentence_encoder(folder, {"pooling_mode_lasttoken": True})
    recipe = folders.recipe(folder, ("sentiment",), tiny_folder.parent / "rows", **FEW)
    with pytest.raises(UserError, match=r"tasks.sentiment.pooling: .*lasttoken .*; set mean"):
        train(recipe, tmp_path / "run")
    train(recipe, tmp_path / "run", ["tasks.sentiment.pooling=cls"])


def test_a_run_from_before_goes_on_with_the_pooler(tiny_folder: Path, tmp_path: Path) -> None:
    """Where its recipe does not say: that was the default, whatever the encoder was made for."""
    folder = shutil.copytree(tiny_folder, tmp_path / "encoder")
    recipe = folders.recipe(folder, ("sentiment",), tiny_folder.parent / "rows", **FEW)
    run = train(recipe, tmp_path / "run")
    weights = (run.model / "model.safetensors").read_bytes()
    text = run.recipe_file.read_text()
    assert "    pooling: pooler\n" in text
    run.recipe_file.write_text(text.replace("    pooling: pooler\n", ""))
    (run.folder / "scores.json").unlink()
    run.checkpoint.unlink()
    folders.sentence_encoder(folder, {"pooling_mode_mean_tokens": True})
    again = bough.resume(run.folder)
    assert (again.model / "model.safetensors").read_bytes() == weights


def test_progress_is_shown_on_request(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",), **FEW)
    train(recipe, tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    train(recipe, tmp_path / "told", progress=True)
    assert "step 4/4" in capsys.readouterr().err
    with pytest.raises(UserError, match="has a run already") as caught:
        train(recipe, tmp_path / "told")
    assert " -" not in str(caught.value), "a caller in Python has no options"
