import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bough.errors import UserError
from bough.recipe.recipe import Phase, Recipe, Training, schema
from bough.recipe.sources import Hub
from bough.recipe.tasks import Task

ROOT = Path(__file__).parents[2]
TASKS = {
    "sst": {"kind": "classify", "text": "sentence", "train": "a.csv", "dev": "b.csv"},
    "sts": {"kind": "regress", "text": ["a", "b"], "range": [0, 5], "train": "c.csv"},
}
TEXT = """\
encoder: minilm
plan: split@3
tasks:
  sst: {kind: classify, text: sentence}
  sts:
    kind: regress
    text: [a, b]
    range: [0, 5]
training:
  lr: 5e-5
"""

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> str:
        (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
        return str(tmp_path / "recipe.yaml")

    return write


def mistake(source: Any, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        Recipe.read(source, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults() -> None:
    recipe = Recipe.read({"tasks": TASKS})
    assert (recipe.encoder, recipe.plan, recipe.rows) == ("minilm", "full", "error")
    assert recipe.training == Training()
    assert recipe.tasks["sts"] == Task(**TASKS["sts"])
    assert Recipe.read(recipe) is recipe


def test_yaml_values_are_what_they_look_like(write: Write) -> None:
    recipe = Recipe.read(
        write(TEXT.replace("sentence}", "sentence, labels: [no, yes, 010, 1e3]}")),
    )
    assert recipe.training.lr == 5e-5
    assert recipe.tasks["sst"].labels == ("no", "yes", "10", "1000")


def test_merge_keys_and_aliases(write: Write) -> None:
    text = """\
tasks:
  one: &one {kind: classify, text: a, weight: 2}
  two: {<<: *one, text: b}
  three: {<<: [{text: c}, *one]}
"""
    tasks = Recipe.read(write(text)).tasks
    assert {name: (task.text, task.weight) for name, task in tasks.items()} == {
        "one": ("a", 2), "two": ("b", 2), "three": ("c", 2)
    }  # fmt: skip


# --- overrides and variables --------------------------------------------------------------------


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
        ("tasks.sst.kind=clasify", "expected 'classify' or 'regress'; did you mean 'classify'?"),
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
        ("minilm", "&a [*a]", "line 1: an alias stands inside what it refers to"),
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


def test_the_misspelt_key_comes_before_the_missing_one(write: Write) -> None:
    said = mistake(write("task:\n  a: {kind: classify, text: x}\n"))
    assert "line 1: task is no key of a recipe; did you mean 'tasks'? (1 more to mend" in said


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


# --- the data folder ----------------------------------------------------------------------------


def test_data_is_found_from_here_or_from_the_recipe(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    path = write(TEXT + "data: sets\n")
    recipe = Recipe.read(path)
    assert recipe.data == "sets"
    with pytest.raises(UserError, match="no such folder") as caught:
        _ = recipe.root
    assert str(here / "sets") in str(caught.value)
    assert str(tmp_path / "sets") in str(caught.value)
    (tmp_path / "sets").mkdir()
    assert Recipe.read(path).root == tmp_path / "sets"
    (here / "sets").mkdir()
    assert Recipe.read(path).root == here / "sets"
    assert Recipe.read(path).data == str(here / "sets")


def test_the_folder_that_holds_the_files_is_preferred(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "train.csv").touch()
    monkeypatch.chdir(tmp_path / "here")
    path = write(TEXT.replace("sentence}", "sentence, train: train.csv}"))
    assert Recipe.read(path).root == tmp_path


def test_a_file_that_is_only_here_is_taken_from_here(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is typed on the command line is seen from there, whatever lies beside the recipe."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "other.csv").touch()
    (tmp_path / "train.csv").touch()
    (tmp_path / "dev.csv").touch()
    monkeypatch.chdir(here)
    path = write(TEXT.replace("sentence}", "sentence, train: train.csv, dev: dev.csv}"))
    recipe = Recipe.read(path, ["tasks.sst.dev=other.csv"])
    told = recipe.tasks["sst"]
    assert [recipe.root / str(file) for file in (told.train, told.dev)] == [
        tmp_path / "train.csv",
        here / "other.csv",
    ]
    assert Recipe.read(path, ["tasks.sst.dev=none.csv"]).root == tmp_path


def test_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Recipe.read({"tasks": TASKS, "data": "~"}).root == tmp_path
    monkeypatch.delenv("HOME")
    said = mistake({"tasks": TASKS, "data": "~there-is-no-such-user"})
    assert "no such home folder" in said


# --- weights, phases, dump, schema --------------------------------------------------------------


def test_task_weights() -> None:
    tasks = {"a": {**TASKS["sst"], "weight": 3}, "b": TASKS["sts"], "c": TASKS["sts"]}
    recipe = Recipe.read({"tasks": tasks, "training": {"weights": {"b": 0.5}}})
    assert recipe.task_weights() == {"a": 3.0, "b": 0.5, "c": 1.0}


def test_phases() -> None:
    training = Training(steps=None, epochs=7, lr=1.0, phases=[Phase(frozen=True, steps=5, lr=2.0)])
    phase = training.phases[0].over(training)
    assert (phase.steps, phase.lr, phase.phases, phase.batch) == (5, 2.0, (), training.batch)
    longer = Phase(epochs=2).over(training)
    assert (longer.steps, longer.epochs, longer.lr) == (None, 2, 1.0)


@pytest.mark.parametrize(
    "source",
    [
        {"tasks": TASKS},
        {"tasks": TASKS, "plan": {"embeddings": {"sst": "all", "sts": "all"}, "layer 1-4": "all"}},
        {"tasks": TASKS, "encoder": "5e-5", "plan": "no", "data": "$${x}", "device": "cuda:1"},
        {
            "tasks": {
                "t": {
                    "kind": "classify",
                    "text": "x",
                    "labels": ["1", "null", "true", "~", "2024-01-01", "0x10", "<<", "=", "1_000"],
                    "class_weights": {"1": 2},
                    "train": [{"x": "a: b #c\n", "label": 1}, {"x": " é\u2028 ", "label": None}],
                    "dev": [["${x}", 1], ["'\"", 2.5], ["a\x85", 0], ["b\r\n", 0]],
                    "test": {"hub": "a/b", "columns": {"x": "text"}, "labels": [1, 2]},
                }
            },
            "training": {"phases": [{"frozen": True, "epochs": 1}], "evaluate_every": 5},
        },
    ],
)
def test_dump_is_complete_and_reads_back(source: dict[str, Any], write: Write) -> None:
    recipe = Recipe.read(source)
    text = recipe.dump()
    again = Recipe.read(write(text))
    assert again == recipe
    assert again.dump() == text
    for field in [*Recipe.model_fields, *Training.model_fields, *Task.model_fields]:
        assert f"{field}:" in text


def test_schema_explains_every_key() -> None:
    whole = schema()
    json.dumps(whole)
    for name in ("Task", "Training", "Phase", "Hub"):
        for key, field in whole["$defs"][name]["properties"].items():
            assert field.get("description", "").endswith("."), key
    for key, field in whole["properties"].items():
        assert field.get("description", "").endswith("."), key
    assert whole["required"] == ["tasks"]


# --- the recipes that come with bough -----------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_recipes(path: Path) -> None:
    Recipe.read(path)
    head = path.read_text().splitlines()[0]
    assert head.startswith("# "), "the head comment says what it is and the command"
    assert f"bough train recipes/{path.name}" in path.read_text()


def test_cs224n(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BOUGH_DATA", str(tmp_path))
    recipe = Recipe.read(ROOT / "recipes" / "cs224n.yaml")
    assert list(recipe.tasks) == ["sst", "quora", "sts"]
    assert (recipe.rows, recipe.plan, recipe.root) == ("skip", "split@3", tmp_path.resolve())
    assert recipe.training.lr == 5e-5


def test_hub() -> None:
    recipe = Recipe.read(ROOT / "recipes" / "hub.yaml")
    sources = [source for task in recipe.tasks.values() for source in (task.train, task.dev)]
    assert all(isinstance(source, Hub) for source in sources)
