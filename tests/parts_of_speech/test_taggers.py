"""Taggers: TextBlob's as it is; the others, whose data is not here, by what they say about it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from bough.errors import UserError
from bough.parts_of_speech import taggers
from bough.parts_of_speech.taggers import NAME, TAGS, tagger, universal


def told(text: str) -> list[tuple[str, str]]:
    return [(text[w.start : w.end], TAGS[w.tag]) for w in tagger("pattern").words(text)]


def test_patterns_tagger_needs_no_download() -> None:
    assert told("The old tree grows 3 apples, slowly.") == [
        ("The", "DET"), ("old", "ADJ"), ("tree", "NOUN"), ("grows", "VERB"), ("3", "NUM"),
        ("apples", "NOUN"), (",", "PUNCT"), ("slowly", "ADV"), (".", "PUNCT"),
    ]  # fmt: skip


@pytest.mark.parametrize("mark", ["'", "’"])
def test_words_are_cut_as_the_treebank_cuts_them(mark: str) -> None:
    words = [word for word, _ in told(f"It{mark}s what they don{mark}t well-known (!)")]
    assert words == [
        "It",
        f"{mark}s",
        "what",
        "they",
        "do",
        f"n{mark}t",
        "well-known",
        "(",
        "!",
        ")",
    ]


@pytest.mark.parametrize("text", ["", "  \n", "日本語", "😀😀", "a/b a\\b \x00", "_" * 500])
def test_whatever_is_written_has_words_in_order(text: str) -> None:
    words = tagger("pattern").words(text)
    ends = [0, *(w.end for w in words)]
    assert all(end <= w.start < w.end <= len(text) for end, w in zip(ends, words, strict=False))
    assert all(0 < w.tag < len(TAGS) for w in words)


def test_every_tag_of_the_treebank_is_one_of_the_universal() -> None:
    wanted = {
        "NN": "NOUN", "NNS": "NOUN", "NNP-PERS": "PROPN", "VBZ": "VERB", "JJR": "ADJ", "RBS": "ADV",
        "PRP$": "PRON", "MD": "AUX", "``": "PUNCT", ".": "PUNCT", "$": "SYM", "IN": "ADP",
    }  # fmt: skip
    assert {penn: universal(penn) for penn in wanted} == wanted
    assert set(taggers.PENN.values()) | set(taggers.BEGINNINGS.values()) <= set(TAGS)
    assert len(set(TAGS)) == 18


@pytest.mark.parametrize("name", ["pattern", "nltk", "spacy:en_core_web_sm"])
def test_names(name: str) -> None:
    assert NAME.fullmatch(name)
    assert not NAME.fullmatch(f"{name} ")


def test_what_is_missing_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.import_module

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] in ("textblob", "spacy"):
            raise ImportError(name)
        return known(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    taggers.tagger.cache_clear()
    with pytest.raises(UserError, match="'pattern' needs textblob: pip install"):
        tagger("pattern")
    with pytest.raises(UserError, match="'spacy:x' needs spacy: pip install spacy"):
        tagger("spacy:x")
    monkeypatch.setenv("NLTK_DATA", "/nowhere")
    with pytest.raises(UserError, match=r"nltk\.downloader averaged_perceptron_tagger_eng"):
        tagger("nltk")
