"""Whatever a user hands over, files, rows, recipes or overrides: it is read, or a `UserError`."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bough.data import checked_rows
from bough.data.checked_rows import Rows
from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.recipe.sources import Hub
from bough.recipe.tasks import Task
from bough.recipe.training import Phase, Training

CLASSIFY = Task(kind="classify", text="sentence", labels=[0, 1])
OPEN = Task(kind="classify", text=["a", "b"])
REGRESS = Task(kind="regress", text=["a", "b"], range=[0, 5])


def cases(number: int) -> Any:
    """So many examples, the same ones in every run, however slow the machine."""
    return settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def is_sound(task: Task, found: Rows) -> None:
    """What every reader of rows relies on."""
    assert len(found) == len(found.texts) == len(found.ids) == len(found.lines) > 0
    assert sorted(found.lines) == found.lines
    for row in found.texts:
        assert len(row) == len(task.columns)
        assert all(text and text == text.strip() for text in row)
    if found.labels is not None:
        assert len(found.labels) == len(found)
        for label in found.labels:
            low, high = task.range or (0, task.classes - 1)
            assert low <= label <= high
    checked_rows.digest(found)
    json.dumps([list(found.ids), found.report()]).encode()


def try_rows(task: Task, source: Any, folder: Path) -> None:
    """Read under both policies: what passes as it is loses nothing by `skip`."""
    fitted = task.model_copy(update={"train": source, "dev": source, "test": source})
    found = {policy: loaded(fitted, folder, policy) for policy in ("error", "skip")}
    if found["error"] is not None:
        assert found["error"] == found["skip"]
    if found["skip"] is not None:
        known, splits = found["skip"]
        for split in splits.values():
            is_sound(known, split)


def loaded(task: Task, folder: Path, policy: Any) -> Any:
    try:
        return checked_rows.load("t", task, root=folder, policy=policy)
    except UserError:
        return None


# --- files ------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["sentence", "label", "id", "a", "b", ",", "\t", ";", "|", '"', '""', "\n", "\r\n", "\r", " ",
     "0", "1", "2.5", "-1", "nan", "1e400", "é", "\ufeff", "\u2028", "\x00", "text",
     "sentence,label\n", "a\tb\tlabel\n", "x,1\n", "x\ty\t2\n", '"x, y",0\n', '"x\ny"\t']
)  # fmt: skip
BYTES = st.one_of(
    st.lists(PIECES, max_size=40).map(lambda parts: "".join(parts).encode()),
    st.lists(st.one_of(PIECES.map(str.encode), st.binary(max_size=3)), max_size=40).map(b"".join),
    st.tuples(
        st.sampled_from([b"sentence,label\n", b"a\tb\tlabel\n", b"\tid\ta\tb\tlabel\n"]),
        st.lists(PIECES, max_size=60).map(lambda parts: "".join(parts).encode()),
    ).map(b"".join),
    st.binary(max_size=100),
)
TASKS = st.sampled_from([CLASSIFY, OPEN, REGRESS])


@cases(700)
@given(task=TASKS, content=BYTES, suffix=st.sampled_from([".csv", ".tsv", ".txt"]))
def test_delimited_files(task: Task, content: bytes, suffix: str, folder: Path) -> None:
    (folder / f"fuzz{suffix}").write_bytes(content)
    try_rows(task, f"fuzz{suffix}", folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ROW = st.fixed_dictionaries(
    {},
    optional={
        "sentence": st.text(max_size=5) | JSON,
        "a": st.text(max_size=5) | JSON,
        "b": st.text(max_size=5) | JSON,
        "label": st.sampled_from([0, 1, "1", 2.5, "x"]) | JSON,
        "id": JSON,
    },
)
LINE = st.one_of(
    ROW.map(json.dumps), JSON.map(json.dumps), st.text(max_size=10), st.just('{"label": 1' * 9)
)


@cases(300)
@given(task=TASKS, lines=st.lists(LINE, max_size=8), junk=st.binary(max_size=3))
def test_json_lines(task: Task, lines: list[str], junk: bytes, folder: Path) -> None:
    raw = "\n".join(lines).encode("utf-8", "surrogatepass") + junk
    (folder / "fuzz.jsonl").write_bytes(raw)
    try_rows(task, "fuzz.jsonl", folder)


@cases(30)
@given(content=st.binary(max_size=60), magic=st.sampled_from([b"", b"PAR1"]))
def test_parquet_that_is_none(content: bytes, magic: bytes, folder: Path) -> None:
    (folder / "fuzz.parquet").write_bytes(magic + content + magic)
    try_rows(CLASSIFY, "fuzz.parquet", folder)


@cases(150)
@given(name=st.text(min_size=1, max_size=20) | st.sampled_from(["~", "/", "..", "~x", "a" * 300]))
def test_names_of_files(name: str, folder: Path) -> None:
    try_rows(CLASSIFY, name, folder)
    try_rows(CLASSIFY, name + ".csv", folder)


MEMORY = st.one_of(
    st.lists(ROW | st.lists(JSON, max_size=4) | st.text(max_size=4) | JSON, max_size=6),
    st.dictionaries(st.sampled_from(["sentence", "a", "b", "label", "c"]), st.lists(JSON)),
    JSON,
)


@cases(200)
@given(source=MEMORY, pair=st.booleans())
def test_rows_in_memory(source: Any, pair: bool, folder: Path) -> None:
    settings_ = {"kind": "classify", "text": ["a", "b"] if pair else "sentence", "train": source}
    try:
        recipe = Recipe.read({"tasks": {"t": settings_}})
    except UserError:
        return
    assert Recipe.read({"tasks": {"t": settings_}}).dump() == recipe.dump()
    if recipe.tasks["t"].train is not None and not isinstance(recipe.tasks["t"].train, str | Hub):
        try_rows(recipe.tasks["t"], recipe.tasks["t"].train, folder)


WORDS = st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8"), min_size=1, max_size=12)
QUOTED = st.text(st.sampled_from('ab ",;\t'), min_size=1, max_size=12)


@cases(300)
@given(
    table=st.lists(st.tuples(WORDS | QUOTED, WORDS | QUOTED, st.floats(0, 5)), min_size=1),
    delimiter=st.sampled_from([",", "\t", ";"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_what_csv_writes_is_read_back(
    table: list[tuple[str, str, float]], delimiter: str, quoting: int, ends: str, folder: Path
) -> None:
    table = [(a.strip(), b.strip(), c) for a, b, c in table if a.strip() and b.strip()]
    if not table:
        return
    sheet = io.StringIO(newline="")
    writer = csv.writer(sheet, delimiter=delimiter, quoting=quoting, lineterminator=ends)  # type: ignore[arg-type]
    writer.writerows([("a", "b", "label"), *table])
    (folder / "back.csv").write_bytes(sheet.getvalue().encode())
    found = checked_rows.read("t", REGRESS, "back.csv", root=folder, policy="error")
    assert found.texts == [(a, b) for a, b, _ in table]
    assert found.labels == [c for _, _, c in table]
    assert found.lines == list(range(2, len(table) + 2))


# --- recipes and overrides ----------------------------------------------------------------------

WORD = st.sampled_from(
    ["classify", "regress", "twin", "joint", "mlp", "cosine", "auto", "ce", "bce", "linear", "each",
     "epoch", "skip", "balanced", "sst", "raw", "full", "${HOME}", "${", "$${x}", "${NOT_SET_9}",
     "x: y", "no", "1e5", "~", "cuda:1", ""]
)  # fmt: skip
VALUE = st.one_of(
    WORD,
    st.none(),
    st.booleans(),
    st.integers(-3, 600),
    st.floats(),
    st.integers(),
    st.text(max_size=6),
    JSON,
    st.lists(WORD, max_size=3),
    st.lists(st.integers(0, 5), min_size=2, max_size=2),
)


def some_of(model: Any, more: Any = VALUE) -> Any:
    """A mapping with some of the model's keys, and now and then one it does not have."""
    keys = st.sampled_from(sorted(model.model_fields)) | st.text(max_size=4)
    return st.dictionaries(keys, more, max_size=5)


def overlay(base: dict[str, Any], drawn: Any) -> Any:
    return drawn.map(lambda some: base | some)


TASK = overlay({"kind": "classify", "text": "x"}, some_of(Task))
TRAINING = overlay(
    {"lr": 1},
    some_of(Training, VALUE | st.lists(overlay({"epochs": 1}, some_of(Phase)), max_size=2)),
)
NAME = st.sampled_from(["sst", "sts", "all", "a.b", "x y"]) | st.text(max_size=4)
RECIPE = st.fixed_dictionaries(
    {"tasks": st.dictionaries(st.just("sst") | NAME, TASK, min_size=1, max_size=2) | VALUE},
    optional={
        "training": TRAINING | VALUE,
        "plan": VALUE | st.dictionaries(st.text(max_size=3), JSON),
        "data": VALUE,
        "rows": VALUE,
        "encoder": VALUE,
        "threads": VALUE,
        "odd": VALUE,
    },
)


def try_recipe(source: Any, overrides: list[str], again: Path) -> None:
    try:
        recipe = Recipe.read(source, overrides)
    except UserError:
        return
    again.write_text(recipe.dump(), encoding="utf-8")
    # Of recipes that hold NaN only the texts are equal.
    assert Recipe.read(again).dump() == recipe.dump()
    recipe.task_weights()
    try:
        assert recipe.root.is_dir()
    except UserError:
        return


@cases(600)
@given(source=RECIPE)
def test_recipes_as_dicts(source: Any, folder: Path) -> None:
    try_recipe(source, [], folder / "again.yaml")


YAML = st.lists(
    st.sampled_from(
        ["tasks", "training", "sst", ":", ": ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ", ",
         "kind: classify", "text: x", "lr: 1e-5", "- ", "&a ", "*a", "<<: *a", "!!str ", "!x ",
         "? ", "| ", ">-\n", "'", '"', "\\U99999999", "#", "%YAML 9.9\n", "---\n", "...\n", "\t",
         "\x00", "é", "0x", "08", ".inf", "tasks: {sst: {kind: classify, text: x}}\n", "9" * 5000]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@cases(500)
@given(
    text=YAML | st.text(max_size=40), junk=st.sampled_from([b"", b"", b"", b"\xff", b"\xef\xbb"])
)
def test_recipes_as_files(text: str, junk: bytes, folder: Path) -> None:
    (folder / "fuzz.yaml").write_bytes(text.encode("utf-8", "replace") + junk)
    try_recipe(folder / "fuzz.yaml", [], folder / "again.yaml")


KEY = st.lists(
    st.sampled_from(["tasks", "sst", "training", "lr", "weights", "phases", "0", "9", "plan",
                     "train", "hub", "text", "labels", "weight", "encoder", "", "trainig"]),
    min_size=1,
    max_size=4,
).map(".".join)  # fmt: skip
OVERRIDE = st.one_of(
    st.tuples(KEY, VALUE.map(str) | VALUE.map(lambda v: json.dumps(v)) | YAML).map("=".join),
    st.text(max_size=12),
)


@cases(500)
@given(overrides=st.lists(OVERRIDE, min_size=1, max_size=3))
def test_overrides(overrides: list[str], folder: Path) -> None:
    base = {
        "tasks": {"sst": {"kind": "classify", "text": "x"}},
        "training": {"phases": [{"epochs": 1}]},
    }
    try_recipe(base, overrides, folder / "again.yaml")
