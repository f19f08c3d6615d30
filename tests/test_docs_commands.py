"""Every command line that the README and the docs show is one: what can be run here is run.

Trainings are made small (a small encoder, two steps). Surveys, grafts, the whole demo and servers,
which have tests of their own, are not started; their words are read as the command line reads them.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from bough.cli.main import app
from tests.command import bough
from tests.test_docs import NAMES, ROOT, blocks, place

__all__ = ["place"]  # a fixture

STUDIES = "docs/studies"
STEPS = {"train": "training.steps=2", "pretrain": "pretraining.steps=2"}


def commands(page: str) -> Iterator[tuple[str | None, list[str]]]:
    """What each `bough` line reads from standard input, and its words."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            given, pipe, command = line.rpartition(" | ")
            words = shlex.split(command, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):  # variables before a command
                words = words[1:]
            if words[:1] == ["bough"]:
                yield (shlex.split(given)[1] if pipe else None), words[1:]


PAGES = [page for page in NAMES if list(commands(page))]
RUN_HERE = [page for page in PAGES if not page.startswith(STUDIES) and page != "docs/installing.md"]


def test_pages_with_commands_are_found() -> None:
    assert {"README.md", "docs/using.md", "docs/training.md", "docs/export.md"} <= {*RUN_HERE}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_understood(page: str) -> None:
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    for _, (verb, *words) in commands(page):
        assert verbs[verb].make_context(verb, words).params


def started(words: list[str]) -> bool:
    """Whether the line is run by this test."""
    if words[0] in ("serve", "graft", "soup"):
        return False
    if words[0] == "survey":
        return "--list" in words and not words[1].startswith("/")
    if "--label" in words:  # of a file and a task that the page makes up
        return False
    if {"--int8", "int8"} & {*words}:  # which has no kernel for so small an encoder
        return False
    return words != ["demo"] and "runs/depth-small" not in words


def prepare(page: str, tiny_folder: Path) -> None:
    """The files and runs that a page's commands name."""
    shutil.copy(tiny_folder.parent / "rows" / "sentiment-train.csv", "reviews.csv")
    text = Path("reviews.csv").read_text(encoding="utf-8").replace("text,label", "sentence,label")
    Path("reviews.csv").write_text(text, encoding="utf-8")
    Path("new.csv").write_text("sentence\nA fine film.\n", encoding="utf-8")
    Path("texts.txt").write_text("A fine film.\n", encoding="utf-8")
    Path("pairs.tsv").write_text("sentence1\tsentence2\nHow old?\tWhat age?\n", encoding="utf-8")
    mine = "sentence,review,sentiment\nA fine film.,Not for me.,0\nDull.,Good.,1\n"
    Path("mine.csv").write_text(mine, encoding="utf-8")
    more = '{"sentence": "A fine film.", "sentiment": "0"}\n'
    Path("more.jsonl").write_text(more, encoding="utf-8")
    surveys = [text for text in blocks(page, "yaml") if text.startswith("# depth.yaml")]
    for text in surveys:
        shallow = text.replace("split@3", "split@1")  # as the small encoder is
        Path("depth.yaml").write_text(shallow, encoding="utf-8")
    shown = "\n".join(" ".join(words) for _, words in commands(page))
    shown = shown.replace("RUN", "runs/first")
    runs = {name: ("full", 0) for name in ("first", "cs224n") if f"runs/{name}" in shown}
    runs = {name: made for name, made in runs.items() if f"-o runs/{name}" not in shown}
    if "runs/plans" in shown:  # what a survey would have made
        runs |= {f"plans/{plan}-{n}": (plan, n) for plan in ("full", "separate") for n in (0, 1)}
    for run, (plan, seed) in runs.items():
        words = ["--set", f"plan={plan}", "--set", f"training.seed={seed}"]
        assert bough("train", "recipes/cs224n.yaml", "-o", f"runs/{run}", *words) == 0


@pytest.mark.parametrize("page", RUN_HERE)
def test_commands_run(
    page: str, place: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(page, tiny_folder)
    for given, printed in commands(page):
        words = ["runs/first" if word == "RUN" else word for word in printed]
        if not started(words):
            continue
        if words[0] in STEPS and "--resume" not in words:
            shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)
            words += ["--set", f"encoder={tiny_folder}", "--set", STEPS[words[0]]]
        elif "--resume" in words:  # as after a kill just before the end
            Path(words[-1], "scores.json").unlink()
        if given is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{given}\n".encode())))
        assert bough(*words) == 0, f"{page}: bough {' '.join(words)}"


def test_make_knows_what_the_pages_ask_of_it() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for page in NAMES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert {*re.findall(r"(?:^|`)make ([a-z]+)", text, re.M)} <= {*targets}, page
