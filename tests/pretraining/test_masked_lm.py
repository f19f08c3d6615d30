"""The encoder that guesses words equals transformers', for every family that has such a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional as F

from bough.files import write_atomically
from bough.model import pretrained
from bough.model.encoder_files import read_tensors
from bough.model.families.weight_names import expected
from bough.plan.plan import Cell
from bough.pretraining.encoder_folder import weights
from bough.pretraining.masked_lm import HEAD, MaskedLM, read_head, written_head
from bough.pretraining.masking import TEXTS
from tests import tiny
from tests.reference import MODELS, keep

# The words' other names, under which some families list them first.
TIED = {"lm_head.decoder.weight", "lm_head.decoder.bias"}


def masked(family: str, settings: dict[str, Any]) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **settings)
    model: transformers.PreTrainedModel = transformers.AutoModelForMaskedLM.from_config(config)
    model.eval()
    with torch.no_grad():  # norms and biases start trivial, which would hide a mix-up
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "relative" in name:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_loss_and_gradients_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    family, settings = MODELS[kind]
    theirs = masked(family, settings)
    encoder = pretrained.load(str(keep(theirs, tmp_path)))
    head = read_head(read_tensors(tmp_path), encoder.shape)
    assert head is not None
    ours = MaskedLM.of(encoder, head, 0)
    pack = tiny.pack([7, 3, 12, 7, 5])
    places = torch.tensor([1, 4, 8, 11, 12, 20, 25, 31, 33])
    targets = torch.arange(4, 4 + len(places))
    logits = ours(pack, {TEXTS: places})[TEXTS]
    parts = pack.tokens.split(pack.lengths)
    rows = [theirs(tokens[:, 0].unsqueeze(0)).logits[0] for tokens in parts]
    wanted = torch.cat(rows)[places]
    assert torch.allclose(logits, wanted, atol=1e-5)
    F.cross_entropy(logits, targets).backward()
    F.cross_entropy(wanted, targets).backward()
    every = theirs.named_parameters(remove_duplicate=False)  # the words have two names
    reached = {n: p.grad for n, p in every if p.grad is not None}
    prefix = f"{theirs.base_model_prefix}."
    compared = set()
    for name, sources in expected(encoder.shape).items():
        place, rest = name.split(".", 1)
        cell = Cell(place, "all")
        if cell not in ours.plan.users():
            continue  # the pooler
        found = [reached[prefix + source] for source in sources if prefix + source in reached]
        gradient = ours.cells[cell.key].get_parameter(rest).grad
        assert gradient is not None, name
        assert _close(gradient, torch.cat(found)), name
        compared |= {prefix + source for source in sources}
    named = written_head(ours.head, encoder.shape)
    for name, parameter in ours.head.named_parameters():
        (theirs_name,) = (n for n, t in named.items() if t.data_ptr() == parameter.data_ptr())
        aliases = [theirs_name, theirs_name.replace("bias", "decoder.bias")]
        gradient = next(reached[alias] for alias in aliases if alias in reached)
        assert _close(parameter.grad, gradient), name
        compared |= set(aliases)
    assert {n for n, _ in theirs.named_parameters() if n in reached} - compared <= TIED


def _close(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    assert one is not None
    return bool((one - other).norm() / other.norm().clamp(min=1e-3) < 1e-4)


@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "distilbert", "mpnet", "electra", "modernbert", "deberta-v3"]
)
def test_what_is_written_is_a_checkpoint_of_the_family(kind: str, tmp_path: Path) -> None:
    family, settings = MODELS[kind]
    folder = keep(masked(family, settings), tmp_path / "first")
    encoder = pretrained.load(str(folder))
    ours = MaskedLM.of(encoder, None, 3)
    tiny.add_noise(ours, 0.05)
    write_atomically(folder / "model.safetensors", weights(ours, encoder))
    theirs, told = transformers.AutoModelForMaskedLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not told["missing_keys"], told
    assert not [k for k in told["unexpected_keys"] if "pooler" not in k], told
    pack = tiny.pack([9])
    wanted = theirs.eval()(pack.tokens[:, 0].unsqueeze(0)).logits[0]
    assert torch.allclose(ours(pack, {TEXTS: torch.arange(9)})[TEXTS], wanted, atol=1e-5)
    again = pretrained.load(str(folder))
    head = read_head(read_tensors(folder), again.shape)
    assert head is not None
    assert torch.equal(head["bias"], ours.head.bias.detach())


def test_a_head_of_other_sizes_or_none_is_not_taken() -> None:
    encoder = tiny.encoder()
    assert read_head({}, encoder.shape) is None
    names = {"cls.predictions.transform.dense.weight": torch.zeros(3, 3)}
    assert read_head(names, encoder.shape) is None


def test_only_the_places_asked_for_meet_the_vocabulary() -> None:
    model = MaskedLM.of(tiny.encoder(), None, 0)
    seen: list[int] = []
    model.head.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    out = model(tiny.pack([9, 4]), {TEXTS: torch.tensor([2, 11])})
    assert seen == [2]
    assert out[TEXTS].shape == (2, tiny.VOCABULARY)


def test_the_words_are_one_table_and_the_head_is_the_plans() -> None:
    model = MaskedLM.of(tiny.encoder(), None, 0)
    assert model.lookups() == []
    assert {cell for cell in model.owned() if cell.place == "head"} == {HEAD}
    sizes = [p.shape for _, p in model.owned()[Cell("head", TEXTS)]]
    assert (tiny.VOCABULARY, 16) not in sizes
    assert all(p.requires_grad for p in model.parameters())
