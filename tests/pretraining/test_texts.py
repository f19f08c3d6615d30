"""Which texts are read: of the tasks, of files, each once, some held out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bough.errors import UserError
from bough.pretraining.texts import gather, prepare
from bough.recipe.pretraining import Pretraining
from tests import tiny

ROWS = {
    "single": {"train": tiny.rows([("a tree",), ("who",)]), "dev": tiny.rows([("unseen",)])},
    "pairs": {"train": tiny.rows([("who", "what"), ("the leaf", "a tree"), ("one", "two")])},
    "judged only": {"dev": tiny.rows([("never",)])},
}


def test_of_pairs_the_first_or_both_each_text_once(tmp_path: Path) -> None:
    assert gather(Pretraining(), ROWS, tmp_path) == ("a tree", "who", "the leaf", "one")
    both = gather(Pretraining(texts="both"), ROWS, tmp_path)
    assert both == ("a tree", "who", "what", "the leaf", "one", "two")


def test_lines_of_files_join_them(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_bytes("\ufeffwho\n\n  an own line \r\nlast".encode())
    read = gather(Pretraining(files=("more.txt",)), ROWS, tmp_path)
    assert read == ("a tree", "who", "the leaf", "one", "an own line", "last")
    alone = Pretraining(texts="none", files=str(tmp_path / "more.txt"))
    assert gather(alone, ROWS, tmp_path) == ("who", "an own line", "last")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there are 0 different texts.*name `files`"):
        gather(Pretraining(texts="none"), ROWS, tmp_path)
    with pytest.raises(UserError, match=r"nowhere\.txt does not exist"):
        gather(Pretraining(files=("nowhere.txt",)), ROWS, tmp_path)
    (tmp_path / "bad.txt").write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(UserError, match=r"bad\.txt line 2: byte 0xef is not UTF-8"):
        gather(Pretraining(files=("bad.txt",)), ROWS, tmp_path)


def test_the_same_texts_are_held_out_and_none_is_learned_from() -> None:
    texts = tuple(f"the {a} {b}" for a in tiny.WORDS for b in tiny.WORDS)
    read = prepare(texts, 0.1, tiny.tokenizer(), 40)
    assert len(read.held_out) == round(0.1 * len(texts))
    assert len(read.held_out) + len(read.learned) == len(texts)
    parts = [
        {tuple(e.sequences.ids[a:b]) for a, b in pairwise(e.sequences.bounds)}
        for e in (read.learned, read.held_out)
    ]  # fmt: skip
    assert not parts[0] & parts[1]
    assert read.digest() == prepare(texts, 0.1, tiny.tokenizer(), 40).digest()
    assert read.digest() != prepare(texts[1:], 0.1, tiny.tokenizer(), 40).digest()
    two = prepare(texts[:2], 0.9, tiny.tokenizer(), 3)
    assert (len(two.learned), len(two.held_out), two.learned.cut) == (1, 1, 1)
