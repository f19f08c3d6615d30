"""Settings as they are written: overrides, variables, and the line of whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bough.recipe.raw_settings import flattened
from bough.recipe.recipe import Recipe
from bough.recipe.training import Phase
from tests.recipe.written import TASKS, TEXT, Write, mistake


def test_overrides(write: Write) -> None:
    recipe = Recipe.read(
        write(TEXT),
        [
            "training.lr=3e-5",
            "training.weights.sst=.5",
            "training.phases=[{frozen: true, epochs: 1}, {steps: 10}]",
            "training.phases.1.lr=1e-5",
            "plan=split@3/sst+sts, late:SI",
            "tasks.sst.labels=[no, yes]",
            "tasks.new={kind: classify, text: x}",
            "threads=2",
            "training.clip=",
        ],
    )
    training = recipe.training
    assert (training.lr, training.weights, training.clip) == (3e-5, {"sst": 0.5}, None)
    assert training.phases == (Phase(frozen=True, epochs=1), Phase(steps=10, lr=1e-5))
    assert recipe.plan == "split@3/sst+sts, late:SI"
    assert recipe.tasks["sst"].labels == ("no", "yes")
    assert "new" in recipe.tasks
    again = Recipe.read(recipe, ["training.lr=1"])
    assert again.training.lr == 1
    assert again.plan == recipe.plan


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.lrr=1", "training.lrr is no key of a recipe; did you mean 'lr'?"),
        (
            "training.precision=bf16",
            "training.precision is no key of a recipe; precision stands in the recipe itself",
        ),
        ("traning.lr=1", "traning is no key of a recipe; did you mean 'training'?"),
        ("tasks.stt.weight=1", "there is no task 'stt', only sst, sts; did you mean 'sts'?"),
        ("tasks.sst.train.splt=x", "tasks.sst.train.splt is no key of a recipe"),
        ("encoder.size=3", "encoder is 'minilm', which has no keys below it"),
        ("training.lr", "expected KEY=VALUE"),
        ("=1", "expected KEY=VALUE"),
        ("training..lr=1", "expected KEY=VALUE"),
        ("training.lr=[1", "is not YAML"),
        ("training.lr=fast", "training.lr is 'fast'; expected a valid number"),
        ("training.phases=[{epochs: 1}]\n", ""),
        ("training.epochs=0", "training.epochs is 0; expected a number greater than or equal to 1"),
        (
            "tasks.sst.kind=clasify",
            "'multilabel' or 'tag'; did you mean 'classify'?",
        ),
        ("device=gpu", "device is 'gpu'. Where to compute: auto, cpu, cuda, cuda:N or mps."),
    ],
)
def test_overrides_that_fail(write: Write, override: str, said: str) -> None:
    if not said:
        Recipe.read(write(TEXT), [override])
        return
    message = mistake(write(TEXT), override)
    assert message.startswith(f"--set {override}")
    assert said in message


def test_override_of_an_item_that_is_not_there(write: Write) -> None:
    said = mistake(write(TEXT), "training.phases=[{epochs: 1}]", "training.phases.1.lr=1")
    assert "training.phases is a list of 1, which has no item '1'" in said


def test_variables(monkeypatch: pytest.MonkeyPatch, write: Write, tmp_path: Path) -> None:
    monkeypatch.setenv("BOUGH_TEST_NAME", "one")
    monkeypatch.delenv("BOUGH_TEST_NONE", raising=False)
    text = TEXT.replace("minilm", "x-${BOUGH_TEST_NAME}-${BOUGH_TEST_NONE:-two}-$${three}")
    recipe = Recipe.read(write(text))
    assert recipe.encoder == "x-one-two-${three}"
    (tmp_path / "again.yaml").write_text(recipe.dump())
    assert Recipe.read(tmp_path / "again.yaml") == recipe
    said = mistake(write(TEXT.replace("minilm", "${BOUGH_TEST_NONE}")))
    assert "recipe.yaml line 1: encoder needs the variable BOUGH_TEST_NONE" in said
    assert "write a variable as" in mistake(write(TEXT.replace("minilm", "a ${b c}")))


def test_rows_in_memory_are_not_expanded() -> None:
    rows = [("I like ${NOTHING}", 1), ("$${", 0)]
    recipe = Recipe.read({"tasks": {"t": {"kind": "classify", "text": "x", "train": rows}}})
    assert recipe.tasks["t"].train == tuple(rows)


# --- what can be wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lr: 5e-5", "lrr: 5e-5", "line 10: training.lrr is no key of a recipe"),
        ("lr: 5e-5", "lr: -1", "line 10: training.lr is -1; expected a number greater than 0"),
        ("kind: regress", "kind: regres", "line 6: tasks.sts.kind is 'regres'"),
        ("[0, 5]", "[0, 5, 6]", "line 8: tasks.sts.range: expected the lowest and"),
        ("[0, 5]", "[5, 0]", "line 8: tasks.sts.range: [5, 0] is empty"),
        ("text: sentence", "txt: sentence", "line 4: tasks.sst.txt is no key of a recipe"),
        (", text: sentence", "", "line 4: tasks.sst.text is missing. The column that holds"),
        ("  sts:", "  sst:", "line 5: tasks.sst is there twice, on line 4 too; keep one"),
        ("  sts:", "  all:", "line 5: tasks.all: this name has a meaning of its own"),
        ("  sts:", "  a.b:", "line 5: tasks.a.b: a task's name has letters, digits, - and _ only"),
        ("lr: 5e-5", "select: st", "line 10: training.select: 'st' is no score"),
        ("lr: 5e-5", "weights: {st: 1}", "line 10: training.weights.st: there is no such task"),
        ("lr: 5e-5", "weights: {sst: 0, sts: 0}", "line 10: training.weights: every task has"),
        ("lr: 5e-5", "phases: [{lr: 1}]", "line 10: training.phases.0: a phase needs its length"),
        ("lr: 5e-5", "{", "line 11 is not YAML"),
        ("minilm", "!!python/name:os.system x", "line 1: the tag"),
        ("minilm", "&a [*a]", "line 1: aliases such as *a are not read; write the value out"),
        ("minilm", "\x07", "line 1 is not YAML: special characters are not allowed"),
        ("plan: split@3", "plan: 3", "line 2: plan: expected the plan's text"),
        ("range: [0, 5]", "head: cosine", "line 8: tasks.sts.head: 'cosine' compares"),
        ("range: [0, 5]", "train: {hub: x, splt: y}", "line 8: tasks.sts.train.splt is no key"),
        ("range: [0, 5]", "train: [[x, y], 3]", "line 8: tasks.sts.train: row 2 is 3"),
        ("range: [0, 5]", "? [a, b]\n    : 1", "line 8: a key is a list or a mapping"),
    ],
)
def test_one_sentence_and_its_line(write: Write, old: str, new: str, said: str) -> None:
    path = write(TEXT.replace(old, new, 1))
    message = mistake(path)
    assert f"{path} {said}" in message


def test_all_misspelt_keys_are_named(write: Write) -> None:
    path = write(TEXT.replace("lr: 5e-5", "epoch: 3\n  learning_rate: 1e-4"))
    assert mistake(path) == (
        f"{path} line 10: training.epoch is no key of a recipe; did you mean 'epochs'?; also "
        f"{path} line 11: training.learning_rate is no key of a recipe; did you mean 'lr'?"
    )


def test_the_misspelt_key_comes_before_the_missing_one(write: Write) -> None:
    said = mistake(write("task:\n  a: {kind: classify, text: x}\n"))
    assert "line 1: task is no key of a recipe; did you mean 'tasks'? (1 more to fix" in said


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({}, "tasks is missing"),
        ({"tasks": {}}, "tasks is {}; expected at least one"),
        ({"tasks": None}, "tasks is None; expected keys and values below it"),
        ({"tasks": {"a": 3}}, "tasks.a is 3; expected keys and values below it"),
        ({"tasks": TASKS, "training": {"phases": 3}}, "training.phases is 3; expected a list"),
        ({"tasks": TASKS, "training": {"steps": 3, "phases": [{"steps": 1}]}}, "`steps` out"),
        ({"tasks": TASKS, "training": {"evaluate_every": 0}}, "expected epoch, or a number"),
        ({"tasks": TASKS, "training": {"lr": float("nan")}}, "training.lr is nan"),
        ({"tasks": TASKS, "training": {"weights": {"sst": float("inf")}}}, "finite number"),
        (
            {
                "tasks": {"a": {"kind": "regress", "text": "x", "loss": "pearson"}},
                "training": {"accumulate": 2},
            },
            "tasks.a.loss: the correlation is of a whole batch, which `accumulate` cuts",
        ),
        (3, "a recipe is a file, a dict or a Recipe, not 3"),
    ],
)
def test_dicts_that_are_no_recipe(source: Any, said: str) -> None:
    assert said in mistake(source)


def test_files_that_are_no_recipe(write: Write, tmp_path: Path) -> None:
    assert "is empty" in mistake(write("# nothing\n"))
    assert "expected keys such as `tasks`" in mistake(write("- 1\n"))
    assert "did you mean 'recipe.yaml'?" in mistake(tmp_path / "recipe.yml")
    assert "is a folder" in mistake(tmp_path)
    assert "nested too deeply" in mistake(write("[" * 3000))
    (tmp_path / "latin.yaml").write_bytes("tasks:\n  é: 1\n".encode("latin-1"))
    assert "line 2: byte 0xe9 is not UTF-8" in mistake(tmp_path / "latin.yaml")


def test_a_dict_that_holds_itself() -> None:
    source: dict[str, Any] = {}
    source["tasks"] = source
    assert "holds itself" in mistake(source)


def test_settings_by_dotted_keys() -> None:
    nested = {"a": {"b": 1, "c": {"d": [1, {"e": 2}]}}, "f": {}, "g": None}
    assert flattened(nested) == {"a.b": 1, "a.c.d": [1, {"e": 2}], "f": {}, "g": None}


def test_a_variable_stands_in_paths_only(
    monkeypatch: pytest.MonkeyPatch, write: Write, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOUGH_TEST_SECRET", "hush")
    for override in (
        "tasks.sst.labels=['${BOUGH_TEST_SECRET}', b]",
        "plan=${BOUGH_TEST_SECRET}",
        "tasks.sst.text=a ${BOUGH_TEST_SECRET:-x}",
    ):
        said = mistake(write(TEXT), override)
        assert "names the variable BOUGH_TEST_SECRET; only paths may" in said
        assert "hush" not in said


def test_paths_keep_their_variables(
    monkeypatch: pytest.MonkeyPatch, write: Write, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOUGH_TEST_DATA", str(tmp_path))
    recipe = Recipe.read(write(TEXT), ["data=${BOUGH_TEST_DATA:-elsewhere}"])
    assert recipe.data == str(tmp_path.resolve())
    again = tmp_path / "again.yaml"
    again.write_text(recipe.dump())
    assert "data: ${BOUGH_TEST_DATA}\n" in again.read_text()
    assert Recipe.read(again) == recipe
    monkeypatch.delenv("BOUGH_TEST_DATA")
    assert "data needs the variable BOUGH_TEST_DATA" in mistake(again)
    assert Recipe.read(again, unset="keep").data == "${BOUGH_TEST_DATA}"
