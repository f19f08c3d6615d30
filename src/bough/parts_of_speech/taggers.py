"""Words to their parts of speech, by whichever tagger a recipe names.

`pattern` is TextBlob's, which carries its lexicon in the package (English). `nltk` and
`spacy:MODEL` need data of their own that their users have. All speak in the universal tags
(https://universaldependencies.org/u/pos), so that a model knows seventeen, and none for what is no
word.
"""

from __future__ import annotations

import importlib
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from bough.errors import UserError
from bough.extras import install_line

NAME = re.compile(r"pattern|nltk|spacy:[A-Za-z0-9_.-]+")
TAGS = (
    "", "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip
NUMBERS = {tag: number for number, tag in enumerate(TAGS)}
# The Penn treebank's tags, as far as their first letters do not tell; what is left is punctuation.
PENN = {
    "CC": "CCONJ", "CD": "NUM", "DT": "DET", "EX": "PRON", "FW": "X", "IN": "ADP", "LS": "X",
    "MD": "AUX", "NNP": "PROPN", "NNPS": "PROPN", "PDT": "DET", "POS": "PART", "PRP": "PRON",
    "PRP$": "PRON", "RP": "ADP", "SYM": "SYM", "TO": "PART", "UH": "INTJ", "WDT": "DET",
    "WP": "PRON", "WP$": "PRON", "WRB": "ADV", "$": "SYM", "#": "SYM",
}  # fmt: skip
BEGINNINGS = {"NN": "NOUN", "VB": "VERB", "JJ": "ADJ", "RB": "ADV"}
# As the treebank cuts words: do|n't, it|'s; every other sign alone.
_WORD = re.compile(
    r"\w+(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|\w+(?:-\w+)*|\S", re.IGNORECASE
)


class TaggedWord(NamedTuple):
    """Where a word begins and ends in its text, and the number of its tag."""

    start: int
    end: int
    tag: int


class Tagger(ABC):
    """Texts to words with their tags."""

    @abstractmethod
    def words(self, text: str) -> list[TaggedWord]: ...


class PennTagger(Tagger):
    """One that is asked for the words of a text and answers in the treebank's tags."""

    def __init__(self, tag: Callable[[list[str]], Sequence[Sequence[str]]]):
        self.tag = tag

    def words(self, text: str) -> list[TaggedWord]:
        found = list(_WORD.finditer(text))
        if not found:
            return []
        tagged = self.tag([word.group().replace("’", "'") for word in found])
        return [
            TaggedWord(*word.span(), NUMBERS[universal(str(penn))])
            for word, (_, penn, *_) in zip(found, tagged, strict=True)
        ]


class SpacyTagger(Tagger):
    """A pipeline of spaCy's, which cuts words in its own way."""

    def __init__(self, pipeline: Any):
        self.pipeline = pipeline

    def words(self, text: str) -> list[TaggedWord]:
        return [
            TaggedWord(word.idx, word.idx + len(word), NUMBERS.get(word.pos_, 0))
            for word in self.pipeline(text)
        ]


def universal(penn: str) -> str:
    """The universal tag of one of the treebank's."""
    tag = penn.partition("-")[0]  # pattern's NNP-PERS
    if tag in PENN:
        return PENN[tag]
    return BEGINNINGS.get(tag[:2], "PUNCT")


@cache
def tagger(name: str) -> Tagger:
    """The tagger of this name; a UserError with what to install if it is not here."""
    if name == "pattern":
        parser = _package("textblob.en", name, install_line("tags")).parser
        with warnings.catch_warnings():  # it leaves its files to be closed by whoever comes
            warnings.simplefilter("ignore", ResourceWarning)
            parser.find_tags(["A", "text", "with", "Unheardof", "words"])
        return PennTagger(parser.find_tags)
    if name == "nltk":
        tag = _package("nltk", name, install_line("tags")).pos_tag
        try:
            tag(["a", "text"])
        except LookupError:
            raise UserError(
                "parts_of_speech 'nltk' needs nltk's data: "
                "python -m nltk.downloader averaged_perceptron_tagger_eng"
            ) from None
        return PennTagger(tag)
    model = name.removeprefix("spacy:")
    spacy = _package("spacy", name, "pip install spacy")
    try:
        return SpacyTagger(spacy.load(model, exclude=["ner", "parser", "lemmatizer"]))
    except OSError:
        raise UserError(
            f"parts_of_speech {name!r}: spaCy has no model {model!r} here: "
            f"python -m spacy download {model}"
        ) from None


def _package(module: str, name: str, line: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        needed = module.partition(".")[0]
        raise UserError(f"parts_of_speech {name!r} needs {needed}: {line}") from None
