"""`bough init`: whatever is guessed is said, and the recipe trains as it is written."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bough import demo
from bough.cli.main import app
from bough.data import checked_rows
from bough.data.drafting.init_recipe import init
from bough.errors import UserError
from bough.recipe.recipe import Recipe
from bough.training.train import train
from tests.data.reading import texts, words


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, columns: dict[str, list[Any]]) -> Path:
    """A CSV, TSV, JSONL or Parquet file with these columns."""
    path = Path(name)
    records = list(zip(*columns.values(), strict=True))
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(columns, record, strict=True))) for record in records]
        path.write_text("\n".join(lines), encoding="utf-8")
    elif path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            table.writerow(columns)
            table.writerows(records)
    return path


def one_step(recipe: Path, encoder: Path, out: str = "run") -> dict[str, Any]:
    """Train a step; the recipe itself is not touched."""
    overrides = [f"encoder={encoder}", "training.steps=1", "training.evaluate_rows=20"]
    return train(recipe, out, overrides).scores


# --- the embedded data ---------------------------------------------------------------------------


def test_embedded_files_train_as_they_are(tiny_folder: Path) -> None:
    written = init(sorted((tiny_folder.parent / "rows").glob("*.csv")))
    recipe = Recipe.read("recipe.yaml")
    kinds = {name: (task.kind, task.columns) for name, task in recipe.tasks.items()}
    assert kinds == {
        "questions": ("classify", ("question1", "question2")),
        "sentiment": ("classify", ("text",)),
        "similarity": ("regress", ("sentence1", "sentence2")),
    }
    assert recipe.tasks["similarity"].range == (0, 5)
    assert recipe.tasks["questions"].labels == ("different", "same")
    assert written.files == (Path("recipe.yaml"),)
    scores = one_step(Path("recipe.yaml"), tiny_folder)
    assert set(scores["dev"]["tasks"]) == set(kinds)


def test_each_embedded_train_file_alone_gets_a_dev_set(tiny_folder: Path) -> None:
    for file in sorted(demo.folder().glob("*-train.csv")):
        name = file.stem.removesuffix("-train")
        init([file], f"{name}.yaml")
        recipe = Recipe.read(f"{name}.yaml")
        task, found = checked_rows.load(name, recipe.tasks[name], root=recipe.root, policy="error")
        assert len(found["train"]) + len(found["dev"]) == 1000
        assert 90 <= len(found["dev"]) <= 110
        assert not set(found["train"].texts) & set(found["dev"].texts)
        whole = task.model_copy(update={"train": str(file)})
        every = checked_rows.load(name, whole, root=recipe.root, policy="error")[1]["train"]
        lines = {
            (texts, label) for texts, label in zip(every.texts, every.labels or (), strict=True)
        }
        for part in found.values():
            assert set(zip(part.texts, part.labels or (), strict=True)) <= lines
        scores = one_step(Path(f"{name}.yaml"), tiny_folder, name)
        assert set(scores["dev"]["tasks"]) == {name}


# --- which file is what --------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_splits_by_name_in_every_form(ending: str) -> None:
    for name, size in (("mood_train", 30), ("mood_valid", 9), ("mood_test", 5)):
        write(f"{name}.{ending}", {"text": texts(size), "label": words(size, "good", "bad")})
    written = init([Path(f"mood_{s}.{ending}") for s in ("test", "train", "valid")])
    recipe = Recipe.read("recipe.yaml")
    task = recipe.tasks["mood"]
    assert (task.train, task.dev, task.test) == (
        f"mood_train.{ending}", f"mood_valid.{ending}", f"mood_test.{ending}",
    )  # fmt: skip
    assert task.labels == ("bad", "good")
    assert written.files == (Path("recipe.yaml"),)


def test_files_named_only_by_their_split_take_the_folders_name(tmp_path: Path) -> None:
    folder = tmp_path / "reviews of 2024"
    folder.mkdir()
    for split in ("train", "dev"):
        write(f"{folder}/{split}.csv", {"text": texts(12), "label": words(12, "a", "b")})
    init([folder / "train.csv", folder / "dev.csv"])
    assert set(Recipe.read("recipe.yaml").tasks) == {"reviews-of-2024"}


def test_marks_around_a_name_are_no_words() -> None:
    for split in ("train", "dev"):
        write(f"_{split}_mood.csv", {"text": texts(12), "label": words(12, "a", "b")})
    init([Path("_train_mood.csv"), Path("_dev_mood.csv")])
    assert set(Recipe.read("recipe.yaml").tasks) == {"mood"}


def test_a_dev_file_without_train_is_cut() -> None:
    write("news_dev.csv", {"text": texts(100), "label": words(100, "x", "y")})
    write("news_test.csv", {"text": texts(20, 200)})
    written = init([Path("news_dev.csv"), Path("news_test.csv")])
    task = Recipe.read("recipe.yaml").tasks["news"]
    # The file that would be written is the one that is cut, so another name is taken.
    assert (task.train, task.dev, task.test) == ("news-train.csv", "news-dev.csv", "news_test.csv")
    said = "\n".join(written.lines())
    assert "is called dev, and there is no train file" in said
    assert "20 for the end, without labels" in said


def test_a_file_is_never_cut_onto_itself() -> None:
    before = write("news-train.csv", {"text": texts(60), "label": words(60, "x", "y")}).read_bytes()
    written = init([Path("news-train.csv")])
    assert {path.name for path in written.files} == {
        "recipe.yaml", "news-part-train.csv", "news-part-dev.csv",
    }  # fmt: skip
    assert Path("news-train.csv").read_bytes() == before


def test_nothing_is_overwritten() -> None:
    write("news.csv", {"text": texts(60), "label": words(60, "x", "y")})
    init([Path("news.csv")])
    with pytest.raises(UserError, match=r"recipe.yaml is there already and is not overwritten"):
        init([Path("news.csv")])
    again = init([Path("news.csv")], "again.yaml")  # the same rows: nothing to write but the recipe
    assert again.files == (Path("again.yaml"),)
    Path("news-dev.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"news-dev.csv is there already, with other rows"):
        init([Path("news.csv")], "third.yaml")
    assert Path("news-dev.csv").read_text(encoding="utf-8") == "mine"
    assert not Path("third.yaml").exists()


# --- setting rows aside --------------------------------------------------------------------------


def test_too_few_rows_to_set_aside() -> None:
    write("few.csv", {"text": texts(6), "label": words(6, "x", "y")})
    with pytest.raises(UserError, match=r"few.csv has 6 usable rows, too few .* give a dev file"):
        init([Path("few.csv")])


# --- guesses -------------------------------------------------------------------------------------


def test_several_labels_make_several_tasks(tiny_folder: Path) -> None:
    size = 60
    write("mail.csv", {"text": texts(size), "mood": words(size, "good", "bad"),
                       "topic": words(size, "x", "y", "z")})  # fmt: skip
    init([Path("mail.csv")], labels=["mood", "topic"])
    recipe = Recipe.read("recipe.yaml")
    assert list(recipe.tasks) == ["mail-mood", "mail-topic"]
    aside = [
        checked_rows.load(name, task, root=recipe.root, policy="error")[1]["dev"].texts
        for name, task in recipe.tasks.items()
    ]
    assert aside[0] == aside[1]
    sources = {(task.train, task.dev) for task in recipe.tasks.values()}
    assert sources == {("mail-train.csv", "mail-dev.csv")}, "one table, of which each has a column"
    assert set(one_step(Path("recipe.yaml"), tiny_folder)["dev"]["tasks"]) == set(recipe.tasks)


def test_columns_that_are_called_like_labels_are_tasks_of_one_table(tiny_folder: Path) -> None:
    """Some cells empty; a column that says the same in other words is no task of its own."""
    size = 60
    relatedness = ["" if i % 3 == 0 else f"{1 + i % 9 / 2}" for i in range(size)]
    for split, start in (("train", 0), ("dev", 100)):
        write(f"sick-{split}.csv", {
            "sentence1": texts(size, start), "sentence2": texts(size, start + 3),
            "relatedness": relatedness, "entailment": words(size, "no", "yes"),
            "label": words(size, "0", "1"),
        })  # fmt: skip
    said = "\n".join(init([Path("sick-train.csv"), Path("sick-dev.csv")]).lines())
    recipe = Recipe.read("recipe.yaml")
    assert [(n, t.kind, t.label) for n, t in recipe.tasks.items()] == [
        ("sick-relatedness", "regress", "relatedness"), ("sick-label", "classify", "label")
    ]  # fmt: skip
    assert "sick-train.csv: 40 to learn from, 20 more without a label" in said
    assert set(one_step(Path("recipe.yaml"), tiny_folder)["dev"]["tasks"]) == set(recipe.tasks)


def test_other_readings_are_hinted_at() -> None:
    size = 40
    write("mail.csv", {"title": texts(size), "text": texts(size, 3),
                       "label": words(size, "x", "y"),
                       "tone": words(size, "p", "p", "q")})  # fmt: skip
    said = "\n".join(init([Path("mail.csv")]).lines())
    assert "column 'title' is text, too" in said
    assert "column 'tone' could be learned, too: --label label --label tone" in said
    recipe = Path("recipe.yaml").read_text(encoding="utf-8")
    assert "    # or: column 'title' is text, too; to judge it as a pair: --text" in recipe


def test_columns_that_are_named_are_of_the_tables_that_have_them() -> None:
    write("mail.csv", {"text": texts(40), "label": words(40, "x", "y")})
    write(
        "facts.csv", {"told": texts(40), "true story": texts(40, 3), "Verdict": words(40, "p", "q")}
    )
    files = [Path("mail.csv"), Path("facts.csv")]
    with pytest.raises(
        UserError, match=r"both text; choose .* --text told, or both .* --text 'true story'$"
    ):
        init(files)
    with pytest.raises(UserError, match=r"none of mail\.csv, facts\.csv has a column 'tol'; they"):
        init(files, text=["tol"])
    init(files, text=["told", "true story"], labels=["Verdict"])
    tasks = Recipe.read("recipe.yaml").tasks
    assert {name: task.columns for name, task in tasks.items()} == {
        "mail": ("text",),
        "facts": ("told", "true story"),
    }
    assert tasks["mail"].label == "label"


def test_passage_and_claim_are_a_pair() -> None:
    columns = {"Passage": texts(40), "Claim": texts(40, 3), "Verdict": words(40, "p", "q")}
    init([write("claims.csv", columns)])
    assert Recipe.read("recipe.yaml").tasks["claims"].columns == ("Passage", "Claim")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1, 2, 3], "b": [4, 5, 6]}, "no column looks like text .* --text COLUMN"),
        ({"text": texts(20)}, "nothing looks like a label .* --label COLUMN"),
        ({"text": texts(20), "label": ["x"] * 20}, "has only the value .x. in 20 rows"),
        ({"text": texts(20), "p": words(20, "x", "y"), "q": words(20, "x", "y")},
         "the label may be any of p, q; choose with --label"),
        ({"a fine film that i would see again": texts(20), "1": words(20, "0", "1")},
         "the first line looks like a row, not a header"),
    ],
)  # fmt: skip
def test_what_cannot_be_guessed(columns: dict[str, list[Any]], message: str) -> None:
    write("f.csv", columns)
    with pytest.raises(UserError, match=message):
        init([Path("f.csv")])
    assert not Path("recipe.yaml").exists()


@pytest.mark.parametrize(
    ("text", "labels", "said"),
    [
        (["text", "text"], ["label"], "--text text was given twice; name each column once"),
        (["text"], ["label", "label"], "--label label was given twice; name each column once"),
        (["text"], ["text"], "column 'text' is both --text and --label; name two columns"),
    ],
)
def test_columns_that_are_named_twice(text: list[str], labels: list[str], said: str) -> None:
    write("f.csv", {"text": texts(60), "label": words(60, "a", "b")})
    with pytest.raises(UserError) as caught:
        init(["f.csv"], text=text, labels=labels)
    assert str(caught.value) == said
    assert sorted(os.listdir()) == ["f.csv"]


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (["-1e308", "1.5", "1e308"], "-1e+308 and 1e+308 are too far apart to be learned as"),
        (["1.2e308", "1.7e308", "0.5"], "0.5 and 1.7e+308 are too far apart"),
        (["0.5", "0.50"], "0.5 and 0.5 are too much alike"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with(scores: list[str], why: str) -> None:
    write("f.csv", {"text": texts(60), "score": words(60, *scores)})
    with pytest.raises(UserError, match=re.escape(f"f.csv, column 'score': {why}")):
        init(["f.csv"])
    assert sorted(os.listdir()) == ["f.csv"]


def test_misnamed_columns_and_files() -> None:
    write("f.csv", {"text": texts(20), "label": words(20, "x", "y")})
    with pytest.raises(
        UserError, match=r"no column 'txt'; it has text, label; did you mean 'text'"
    ):
        init([Path("f.csv")], text=["txt"])
    with pytest.raises(UserError, match=r"g\.csv does not exist$"):  # endings are always alike
        init([Path("g.csv")])
    write("news.csv", {"text": texts(20), "label": words(20, "x", "y")})
    with pytest.raises(UserError, match=r"nwes\.csv does not exist; did you mean 'news\.csv'"):
        init([Path("nwes.csv")])
    with pytest.raises(UserError, match=r"ends in \.yaml"):
        init([Path("f.csv")], "recipe.txt")
    with pytest.raises(UserError, match="there is no folder"):
        init([Path("f.csv")], "nowhere/recipe.yaml")
    write("f_test.csv", {"text": texts(20), "label": words(20, "x", "y")})
    with pytest.raises(UserError, match="by its name for testing"):
        init([Path("f_test.csv")])
    write("f-all.csv", {"text": texts(20), "label": words(20, "x", "y")})
    with pytest.raises(UserError, match="both look like the train rows of 'f'"):
        init([Path("f.csv"), Path("f-all.csv")])


def test_bad_rows_are_named_and_skipped() -> None:
    columns = {"text": ["", *texts(29)], "label": words(30, "x", "y")}
    write("f-train.csv", columns)
    write("f-dev.csv", {"text": texts(9), "label": words(9, "x", "y")})
    said = "\n".join(init([Path("f-train.csv"), Path("f-dev.csv")]).lines())
    assert "skipped 1 of 30 rows: line 2, column 'text'" in said
    assert Recipe.read("recipe.yaml").rows == "skip"


def test_awkward_names_survive(tiny_folder: Path) -> None:
    odd = "no: ${HOME} 'text' #1"
    write("my ${X} data.csv", {odd: texts(40), "label": words(40, "yes", "${no}", "- x: 1")})
    init([Path("my ${X} data.csv")])
    recipe = Recipe.read("recipe.yaml")
    assert list(recipe.tasks) == ["my-X"]
    assert recipe.tasks["my-X"].columns == (odd,)
    assert recipe.tasks["my-X"].labels == ("${no}", "- x: 1", "yes")


def test_a_line_end_in_a_files_name() -> None:
    write("mood\nencoder: x.csv", {"text": texts(40), "label": words(40, "a", "b")})
    init([Path("mood\nencoder: x.csv")])
    assert Recipe.read("recipe.yaml").encoder == "minilm"


def test_labels_with_line_ends_and_bytes_that_are_no_text() -> None:
    size = 40
    write("f.jsonl", {"text": texts(size), "label": words(size, "one\ntwo: 3", "x\x07")})
    init([Path("f.jsonl")])
    assert Recipe.read("recipe.yaml").tasks["f"].labels == ("one\ntwo: 3", "x\x07")
    lines = [
        f"{text},{label}" for text, label in zip(texts(size), words(size, "y", "z"), strict=True)
    ]
    Path("g.csv").write_bytes("\n".join(["text,label", *lines]).encode().replace(b",z", b",\xff"))
    with pytest.raises(UserError, match=r"g.csv, column 'label': the label .* is not UTF-8"):
        init([Path("g.csv")], "g.yaml")


def test_command_line() -> None:
    write("mood.csv", {"text": texts(60), "label": words(60, "good", "bad")})
    found = CliRunner().invoke(app, ["init", "mood.csv", "-o", "mine.yaml"])
    assert found.exit_code == 0, found.output
    assert "Written: mood-train.csv, mood-dev.csv, mine.yaml" in found.output
    assert "bough train mine.yaml -o runs/mine" in found.output


# --- real files ----------------------------------------------------------------------------------

_EXTRA = Path(os.environ.get("BOUGH_DATA", "")) / ".." / "extra"
real = pytest.mark.skipif(
    not (os.environ.get("BOUGH_DATA") and _EXTRA.is_dir()),
    reason="BOUGH_DATA has no folder `extra` beside it",
)


@real
@pytest.mark.real
@pytest.mark.parametrize(
    ("files", "columns", "classes", "sizes"),
    [
        (["agnews_dev", "agnews_test"], ("text",), 4, (7200, 800, 7600)),
        (["custrev_all"], ("sentence",), 2, (3395, 376, 0)),
        (["rte_train", "rte_dev"], ("sentence1", "sentence2"), 2, (2490, 277, 0)),
        (["cola_train", "cola_dev"], ("sentence",), 2, (8551, 1043, 0)),
        (["banking77_train", "banking77_test"], ("text",), 77, (9000, 1001, 3080)),
    ],
)
def test_real_files_train_as_they_are(
    files: list[str],
    columns: tuple[str, ...],
    classes: int,
    sizes: tuple[int, int, int],
    tiny_folder: Path,
) -> None:
    init([_EXTRA / f"{file}.tsv" for file in files])
    recipe = Recipe.read("recipe.yaml")
    (name,) = recipe.tasks
    assert name == files[0].split("_")[0]
    task, found = checked_rows.load(name, recipe.tasks[name], root=recipe.root, policy=recipe.rows)
    assert task.columns == columns
    assert task.classes == classes
    assert tuple(len(found.get(s, ())) for s in ("train", "dev", "test")) == sizes
    scores = one_step(Path("recipe.yaml"), tiny_folder)
    assert scores["dev"]["tasks"][name]["rows"] == sizes[1]


# --- what is no label ---------------------------------------------------------------------------


def test_nan_is_no_class() -> None:
    write("x.csv", {"text": texts(60), "label": [*words(58, "0", "1"), "nan", "NaN"]})
    assert Recipe.read(init(["x.csv"]).recipe).tasks["x"].labels == ("0", "1")
    write("y.csv", {"text": texts(60), "score": [*(f"{i % 50 / 10}" for i in range(59)), "nan"]})
    task = Recipe.read(init(["y.csv"], out=Path("y.yaml")).recipe).tasks["y"]
    assert (task.kind, task.range) == ("regress", (0, 5))


def test_a_word_among_numbers_is_named() -> None:
    write("x.csv", {"text": texts(60), "score": [*(f"{i % 50 / 10}" for i in range(59)), "N/A"]})
    said = (
        r"column 'score': 59 of 60 labels are numbers, and 'N/A' is not; write a number, or leave"
    )
    with pytest.raises(UserError, match=said):
        init(["x.csv"])


def test_a_label_with_one_value_is_named() -> None:
    write("x.csv", {"text": texts(60), "label": ["x"] * 60})
    with pytest.raises(
        UserError, match="column 'label' has only the value 'x' in 60 rows; a label"
    ):
        init(["x.csv"])


def test_rows_of_one_text_cannot_be_split() -> None:
    write("x.csv", {"text": ["the old tree is green"] * 60, "label": words(60, "a", "b")})
    with pytest.raises(UserError, match="nearly all rows have the same text, so none can be set"):
        init(["x.csv"])


def test_a_file_called_id() -> None:
    """Answers have a column of that name."""
    write("id.csv", {"text": texts(60), "label": words(60, "a", "b")})
    assert list(Recipe.read(init(["id.csv"]).recipe).tasks) == ["id-task"]


def test_init_says_the_classes_and_what_is_odd(tmp_path: Path) -> None:
    moods = ["joy"] * 40 + ["fear"] * 30 + ["jooy"]
    file = tmp_path / "mood.csv"
    lines = [f"it is the text with number {n},{mood}" for n, mood in enumerate(moods)]
    file.write_text("text,label\n" + "\n".join(lines) + "\n")
    said = "\n".join(init([file], tmp_path / "recipe.yaml").lines())
    assert "3 classes in " in said
    assert "class 'jooy' (one row, the first in line " in said
    assert "is nearly 'joy'" in said


def test_lines_of_text_are_no_table(tmp_path: Path) -> None:
    file = tmp_path / "reviews.txt"
    file.write_text("A fine film, and a warm one.\nTwo hours I will not get back.\n" * 20)
    with pytest.raises(UserError, match=r"plain lines of text have no labels to learn from"):
        init([file], tmp_path / "recipe.yaml")
    rows = "".join(f"this is the text number {n}\t{n % 2}\n" for n in range(40))
    file.write_text("text\tlabel\n" + rows)
    assert init([file], tmp_path / "recipe.yaml").tasks[0].name == "reviews"


def test_numbered_classes_are_told_how_to_get_names(tiny_folder: Path) -> None:
    """The line that is offered is taken as it stands."""
    write("moods.csv", {"text": [f"text {i} of some" for i in range(30)], "label": [0, 1, 2] * 10})
    init([Path("moods.csv")], "recipe.yaml")
    text = Path("recipe.yaml").read_text()
    assert "labels: {0: a name, 1: a name, ...}" in text
    text = text.replace("labels: [0, 1, 2]", "labels: {0: sad, 1: calm, 2: glad}")
    Path("named.yaml").write_text(text)
    assert Recipe.read("named.yaml").tasks["moods"].labels == ("sad", "calm", "glad")
    write("words.csv", {"text": [f"text {i} of some" for i in range(30)], "label": ["a", "b"] * 15})
    init([Path("words.csv")], "words.yaml")
    assert "a name" not in Path("words.yaml").read_text()
