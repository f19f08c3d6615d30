"""Masks: as many as asked, of words only, 80/10/10, words whole, the same in the same step."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from bough.data.examples import Examples
from bough.data.loader import Loader
from bough.data.packing import Batch, Pack
from bough.data.tokens import Ints, tokenise
from bough.distributed import ALONE
from bough.errors import UserError
from bough.pretraining.masking import TEXTS, MaskedBatches, Masker
from tests import tiny

COUNT = 100_000
WORDS = ["tree", "##s", "leaf", "##y", "bough", "old", "green", "grow", "##ing", "root"]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer() -> Tokenizer:
    made = Tokenizer(
        models.WordPiece({w: i for i, w in enumerate([*SPECIALS, *WORDS])}, unk_token="[UNK]")
    )
    made.add_special_tokens([AddedToken(word, special=True) for word in SPECIALS])
    return made


def stream(seed: int = 0) -> Ints:
    """Tokens at random, every tenth a special one."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(len(SPECIALS), len(SPECIALS) + len(WORDS), COUNT)
    ids[::10] = rng.integers(0, 4, COUNT // 10)
    return ids


def near(share: float, wanted: float, of: int) -> bool:
    """Within four standard errors."""
    return bool(abs(share - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / of))


def test_the_shares_are_right_over_many_tokens() -> None:
    ids = stream()
    masker = Masker(tokenizer(), 0.15)
    read, places = masker.mask(ids, np.random.default_rng(1))
    free = COUNT * 9 // 10
    assert near(len(places) / free, 0.15, free)
    assert (ids[places] >= len(SPECIALS)).all(), "no special token is to be guessed"
    untouched = np.ones(COUNT, bool)
    untouched[places] = False
    assert (read[untouched] == ids[untouched]).all()
    masked = read[places] == masker.mask_id
    kept = read[places] == ids[places]
    assert near(masked.mean(), 0.8, len(places))
    # A tenth is left, and of the tenth that is replaced one in ten meets its own word.
    assert near(kept.mean(), 0.1 + 0.1 / len(WORDS), len(places))
    others = read[places][~masked & ~kept]
    assert others.min() >= len(SPECIALS)
    counts = np.bincount(others, minlength=15)[len(SPECIALS) :]
    assert all(near(count / len(others), 0.1, len(others)) for count in counts)


def test_whole_words_are_guessed_as_a_whole() -> None:
    ids = stream()
    masker = Masker(tokenizer(), 0.15, whole_words=True)
    places = masker.choose(ids, np.random.default_rng(1))
    free = COUNT * 9 // 10
    assert abs(len(places) / free - 0.15) < 0.01
    chosen = np.zeros(COUNT, bool)
    chosen[places] = True
    goes_on = np.isin(ids, [len(SPECIALS) + i for i, w in enumerate(WORDS) if w.startswith("##")])
    after_word = goes_on[1:] & (ids[:-1] >= len(SPECIALS))
    assert after_word.sum() > 10_000
    assert (chosen[1:] == chosen[:-1])[after_word].all()
    single = Masker(tokenizer(), 0.15).choose(ids, np.random.default_rng(1))
    assert not np.array_equal(single, places)


@pytest.mark.parametrize("blank", ["▁", "Ġ"])
def test_a_word_begins_with_its_blank(blank: str) -> None:
    words = ["<s>", "<mask>", f"{blank}tree", "s", f"{blank}leaf", "y", f"{blank}old", f"{blank}a"]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<s>"))
    made.add_special_tokens(["<s>", "<mask>"])
    masker = Masker(made, 0.15, whole_words=True)
    assert masker.begins.tolist()[2:] == [True, False, True, False, True, True]


def test_in_a_vocabulary_of_words_each_is_one() -> None:
    made = tiny.tokenizer()
    made.add_special_tokens(["[MASK]"])
    assert Masker(made, 0.15, whole_words=True).begins.all()


def test_there_is_always_something_to_guess() -> None:
    masker = Masker(tokenizer(), 0.01)
    for seed in range(20):
        (place,) = masker.choose(np.array([2, 6, 3]), np.random.default_rng(seed))
        assert place == 1
    assert len(masker.choose(np.array([2, 1, 3]), np.random.default_rng(0))) == 1


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    with pytest.raises(UserError, match=r"has no token \[MASK\] or <mask>"):
        Masker(tiny.tokenizer(), 0.15)


def batches(step: int, seed: int = 0) -> list[Batch]:
    made = tokenizer()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    texts: list[tuple[str, ...]] = [("old tree trees growing",), ("leafy green root",)] * 8
    sequences, _ = tokenise(texts, made, 40)
    examples = Examples(sequences, np.arange(16).reshape(-1, 1), None, 0)
    loader = Loader({TEXTS: examples}, lambda: {TEXTS: np.arange(16)}, accumulate=2)
    masked = MaskedBatches(loader, Masker(made, 0.3), [seed], lambda: step, ALONE)
    return [batch for part in masked.next(apart=False) for batch in part.batches]


def test_a_step_always_has_the_same_masks_and_another_step_others() -> None:
    one, again, other, seed = batches(4), batches(4), batches(5), batches(4, seed=1)
    for a, b in zip(one, again, strict=True):
        assert a.pack.tokens.equal(b.pack.tokens)
        assert a.index[TEXTS].equal(b.index[TEXTS])
    assert not one[0].index[TEXTS].equal(one[1].index[TEXTS])  # parts of a step, of equal texts
    assert not one[0].index[TEXTS].equal(other[0].index[TEXTS])
    assert not one[0].index[TEXTS].equal(seed[0].index[TEXTS])


def test_a_batch_knows_what_stood_there() -> None:
    ids = stream()[:200]
    pack = Pack(tiny.pack([200]).tokens.clone(), (200,))
    pack.tokens[:, 0] = pack.tokens[:, 0].new_tensor(ids)
    batch = Masker(tokenizer(), 0.5).batch(Batch(pack, {}, {}), np.random.default_rng(0))
    places = batch.index[TEXTS].numpy()
    assert (batch.targets[TEXTS].numpy() == ids[places]).all()
    assert (pack.tokens[:, 0].numpy() == ids).all(), "the texts themselves stay as they are"
    assert batch.pack.tokens[:, 1:].equal(pack.tokens[:, 1:])
