"""The texts that are read: the tasks' own training texts, lines of files, each once.

A part is held out to judge by, always the same texts whatever the seed. Because no text is there
twice, none of these is learned from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bough.data.checked_rows import Rows
from bough.data.examples import Examples
from bough.data.tokens import tokenise
from bough.errors import UserError
from bough.recipe.pretraining import Pretraining
from bough.user_paths import place, read_bytes

FEWEST = 2  # one to learn from, and one to judge by


@dataclass(frozen=True)
class Texts:
    """What is learned from, and what is judged by."""

    learned: Examples
    held_out: Examples

    def digest(self) -> str:
        """What they are known by, as tokens."""
        whole = hashlib.sha256()
        for part in (self.learned, self.held_out):
            whole.update(part.sequences.ids.tobytes())
            whole.update(part.sequences.bounds.tobytes())
        return whole.hexdigest()


def gather(
    settings: Pretraining, rows: Mapping[str, Mapping[str, Rows]], root: Path
) -> tuple[str, ...]:
    """All texts, each once, in the order in which they are met."""
    texts = dict.fromkeys(_of_tasks(settings, rows))
    for file in settings.files:
        texts |= dict.fromkeys(_lines(place(file, root)))
    if len(texts) < FEWEST:
        raise UserError(
            f"pretraining: there are {len(texts)} different texts, and it takes {FEWEST}; set "
            "`texts` to first or both, or name `files`"
        )
    return tuple(texts)


def prepare(texts: tuple[str, ...], share: float, tokenizer: Tokenizer, longest: int) -> Texts:
    """The texts as tokens, this share of them held out."""
    order = np.random.default_rng(0).permutation(len(texts))
    count = min(max(1, round(share * len(texts))), len(texts) - 1)
    parts = np.sort(order[count:]), np.sort(order[:count])
    learned, held_out = (
        _examples([texts[number] for number in part.tolist()], tokenizer, longest) for part in parts
    )
    return Texts(learned, held_out)


def _examples(texts: list[str], tokenizer: Tokenizer, longest: int) -> Examples:
    sequences, cut = tokenise([(text,) for text in texts], tokenizer, longest)
    index = np.arange(len(sequences)).reshape(-1, 1)
    return Examples(sequences, index, None, int(cut.sum()))


def _of_tasks(settings: Pretraining, rows: Mapping[str, Mapping[str, Rows]]) -> Iterator[str]:
    if settings.texts == "none":
        return
    for by_split in rows.values():
        for parts in by_split["train"].texts if "train" in by_split else ():
            yield from parts if settings.texts == "both" else parts[:1]


def _lines(file: Path) -> Iterator[str]:
    for number, line in enumerate(read_bytes(file).split(b"\n"), 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as fault:
            raise UserError(
                f"{file} line {number}: byte 0x{line[fault.start]:02x} is not UTF-8; save the file "
                "as UTF-8"
            ) from None
        if text:
            yield text
