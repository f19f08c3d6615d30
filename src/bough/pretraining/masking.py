"""Masks, drawn anew for every step: which tokens are to be guessed, and what stands there instead.

As BERT has it (https://arxiv.org/abs/1810.04805): of the chosen tokens 80 % are masked, 10 %
replaced by any word, 10 % left as they are. The masks of a step follow from the seed and the step's
number alone, so a run that goes on draws what it would have drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from bough.data.loader import MicroBatch
from bough.data.packing import Batch
from bough.data.tokens import Ints
from bough.distributed import ALONE, Processes
from bough.errors import UserError
from bough.training.step import Batches

MASKED, REPLACED = 0.8, 0.1  # of the tokens chosen; the rest stays
MASKS = ("[MASK]", "<mask>")
TEXTS = "texts"  # what the one task is called


class Masker:
    """What may be masked in a vocabulary, and by what."""

    def __init__(self, tokenizer: Tokenizer, share: float, whole_words: bool = False):
        self.share = share
        self.whole_words = whole_words
        found = [tokenizer.token_to_id(word) for word in MASKS]
        masks = [number for number in found if number is not None]
        if not masks:
            raise UserError(
                f"the encoder's tokenizer has no token {' or '.join(MASKS)}; masked words cannot "
                "be learned with it"
            )
        self.mask_id = masks[0]
        words = tokenizer.get_vocab()
        size = max(words.values()) + 1
        special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        special |= {*masks, *tokenizer.encode("").ids}
        self.maskable = np.zeros(size, bool)
        self.maskable[[n for n in words.values() if n not in special]] = True
        self.words = np.flatnonzero(self.maskable)
        begins = _begins_word(tokenizer)
        self.begins = np.ones(size, bool)
        self.begins[[n for word, n in words.items() if not begins(word)]] = False

    def choose(self, ids: Ints, rng: np.random.Generator) -> Ints:
        """The places of the tokens to be guessed: at least one, and of words if there are any."""
        free = self.maskable[ids]
        if not self.whole_words:
            drawn = free & (rng.random(len(ids)) < self.share)
        else:
            # A word begins where its first token says so, and after a special token.
            begins = self.begins[ids] | ~free | ~np.concatenate([[False], free[:-1]])
            word = begins.cumsum() - 1
            drawn = free & (rng.random(int(word[-1]) + 1) < self.share)[word]
        if not drawn.any():
            drawn[rng.choice(np.flatnonzero(free if free.any() else ~free))] = True
        return np.flatnonzero(drawn)

    def mask(self, ids: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """The tokens as they are read, and the places to be guessed."""
        places = self.choose(ids, rng)
        kind = rng.random(len(places))
        others = rng.choice(self.words, len(places))
        read = ids.copy()
        read[places] = np.where(
            kind < MASKED,
            self.mask_id,
            np.where(kind < MASKED + REPLACED, others, ids[places]),
        )
        return read, places

    def batch(self, batch: Batch, rng: np.random.Generator) -> Batch:
        """The batch with masks: its index are the places, its targets what stood there."""
        tokens = batch.pack.tokens.clone()
        ids = tokens[:, 0].numpy()
        read, places = self.mask(ids, rng)
        targets = torch.from_numpy(ids[places])
        tokens[:, 0] = torch.from_numpy(read)
        pack = replace(batch.pack, tokens=tokens)
        return Batch(pack, {TEXTS: torch.from_numpy(places)}, {TEXTS: targets})


class MaskedBatches:
    """Batches of texts, masked; `step` is the number of the step at hand."""

    def __init__(
        self,
        batches: Batches,
        masker: Masker,
        seed: Sequence[int],
        step: Callable[[], int],
        processes: Processes = ALONE,
    ):
        self.batches = batches
        self.masker = masker
        self.seed = seed
        self.step = step
        self.processes = processes

    def next(self, apart: bool, most_tokens: int | None = None) -> list[MicroBatch]:
        out = []
        for number, part in enumerate(self.batches.next(apart, most_tokens)):
            rng = np.random.default_rng([*self.seed, self.step(), number, self.processes.rank])
            masked = tuple(self.masker.batch(batch, rng) for batch in part.batches)
            out.append(replace(part, batches=masked))
        return out


def _begins_word(tokenizer: Tokenizer) -> Callable[[str], bool]:
    """Whether a token of this vocabulary stands at the beginning of a word, by how it is written:
    WordPiece marks what goes on, byte pairs and sentence pieces mark the blank before a word."""
    model = json.loads(tokenizer.to_str())["model"]
    if model.get("type") == "WordPiece":
        prefix = model.get("continuing_subword_prefix", "##")
        return lambda token: not token.startswith(prefix)
    words: NDArray[np.str_] = np.array(list(tokenizer.get_vocab()))
    for blank in ("▁", "Ġ"):
        if np.char.startswith(words, blank).mean() > 0.1:  # of a vocabulary without it, next to 0
            return lambda token: token.startswith(blank)
    return lambda token: True
