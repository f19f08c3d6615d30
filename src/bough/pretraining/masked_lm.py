"""An encoder that guesses masked words: the trunk of a plan `full`, and a head onto the vocabulary.

Only the states of masked tokens go through the product with the vocabulary, which is the trunk's
own table of words. The head is the checkpoint's, where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bough.data.packing import Pack
from bough.model.attention import gather_rows
from bough.model.dropout import DropoutGenerator
from bough.model.families.build import empty_weights
from bough.model.network import Network, fresh, plan_of
from bough.model.pretrained import Encoder
from bough.model.transformer import ACTIVATION
from bough.native.norm import wide
from bough.plan.encoder_shape import Shape
from bough.plan.plan import Cell
from bough.pretraining.masking import TEXTS
from bough.recipe.tasks import Task

HEAD = Cell("head", TEXTS)


@dataclass(frozen=True)
class HeadNames:
    """What a family's checkpoints call the parts of this head."""

    dense: str
    norm: str
    biases: tuple[str, ...]  # the vocabulary's; the first is how we write it
    activation: str | None = None  # None: the encoder's own
    bare: bool = False  # dense and norm have no biases of their own


ROBERTA = HeadNames(
    "lm_head.dense", "lm_head.layer_norm", ("lm_head.bias", "lm_head.decoder.bias"), "gelu"
)
BERT = HeadNames(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
)
NAMES: Mapping[str, HeadNames] = {
    **dict.fromkeys(("bert", "deberta-v2"), BERT),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert", "mpnet"), ROBERTA),
    "distilbert": HeadNames("vocab_transform", "vocab_layer_norm", ("vocab_projector.bias",)),
    "electra": HeadNames(
        "generator_predictions.dense",
        "generator_predictions.LayerNorm",
        ("generator_lm_head.bias",),
        "gelu",
    ),
    "modernbert": HeadNames("head.dense", "head.norm", ("decoder.bias",), "gelu", bare=True),
}
OTHERS = HeadNames("masked.dense", "masked.norm", ("masked.bias",), "gelu")


class MaskedHead(nn.Module):
    """Rows to the vocabulary: dense, activation, norm, and the words' own vectors."""

    def __init__(self, shape: Shape):
        super().__init__()
        known = names(shape)
        self.dense = nn.Linear(shape.width, shape.embedding, bias=not known.bare)
        self.activation = ACTIVATION[known.activation or shape.activation]
        self.norm = nn.LayerNorm(shape.embedding, eps=shape.eps, bias=not known.bare)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))

    def forward(self, rows: Tensor, words: Tensor) -> Tensor:
        return F.linear(self.norm(self.activation(self.dense(rows))), words, self.bias)


class MaskedLM(Network):
    """The trunk and that head; learns as a network with one task does."""

    @classmethod
    def of(cls, encoder: Encoder, head: Mapping[str, Tensor] | None, seed: int) -> MaskedLM:
        """The encoder with this head, or with a fresh one."""
        words = tuple(str(number) for number in range(encoder.shape.vocabulary))
        task = Task(kind="classify", text="text", labels=words, loss="ce", pooling="mean")
        tasks = {TEXTS: task}
        model = cls(plan_of("full", tasks, encoder.shape), tasks, encoder.shape)
        for cell in model.plan.users():
            copies = {name: tensor.clone() for name, tensor in encoder.weights(cell.place).items()}
            if cell != HEAD:
                model.cells[cell.key].load_state_dict(copies, assign=True)
        made = MaskedHead(encoder.shape)
        if head is None:
            fresh(made, HEAD, seed)
            nn.init.zeros_(made.bias)
        else:
            made.load_state_dict(head)
        model.cells[HEAD.key] = made
        model.unfreeze()
        return model

    @property
    def words(self) -> nn.Embedding:
        (words,) = super().lookups()
        return words

    @property
    def head(self) -> MaskedHead:
        head = self.cells[HEAD.key]
        assert isinstance(head, MaskedHead)
        return head

    def lookups(self) -> list[nn.Embedding]:
        return []  # the table is multiplied with, too: its gradient has every row

    def forward(
        self,
        pack: Pack,
        sequence_index: Mapping[str, Tensor],
        dropout: DropoutGenerator | None = None,
    ) -> dict[str, Tensor]:
        """For each of the places named, what may stand there: [places, vocabulary]."""
        asked = [(TEXTS,)] * len(pack.lengths)
        forward = self.trunk(pack, asked, dropout)
        (group,) = forward.run(1 + self.plan.layers)
        # The pass puts equal lengths side by side: where has each token of the pack gone?
        starts = torch.tensor(pack.lengths).cumsum(0) - torch.tensor(pack.lengths)
        came = gather_rows(
            [int(starts[stream.sequence]) for stream in group.streams],
            [stream.length for stream in group.streams],
        )
        row = torch.empty_like(came)
        row[came] = torch.arange(len(came))
        rows = wide(group.rows[row[sequence_index[TEXTS].cpu()].to(group.rows.device)])
        return {TEXTS: self.head(rows, self.words.weight)}


def names(shape: Shape) -> HeadNames:
    return NAMES.get(shape.family, OTHERS)


def read_head(theirs: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor] | None:
    """The checkpoint's head by its weights' names; None where it has none of the right sizes."""
    known = names(shape)
    # Early BERT checkpoints call a norm's weight gamma and its bias beta.
    old = {"weight": "gamma", "bias": "beta"}
    sources = {
        "dense.weight": [f"{known.dense}.weight"],
        "dense.bias": [f"{known.dense}.bias"],
        **{f"norm.{part}": [f"{known.norm}.{part}", f"{known.norm}.{old[part]}"] for part in old},
        "bias": list(known.biases),
    }
    with empty_weights():
        sizes = {name: tensor.shape for name, tensor in MaskedHead(shape).state_dict().items()}
    head = {}
    for ours, candidates in sources.items():
        found = [theirs[name] for name in candidates if name in theirs]
        if not found and ours not in sizes:
            continue
        if not found or found[0].shape != sizes.get(ours):
            return None
        head[ours] = found[0].float()
    return head


def written_head(head: MaskedHead, shape: Shape) -> dict[str, Tensor]:
    """The head's tensors under the family's names."""
    known = names(shape)
    parts = {"dense": known.dense, "norm": known.norm}
    out = {known.biases[0]: head.bias.detach()}
    for name, tensor in head.state_dict().items():
        part, _, kind = name.partition(".")
        if part in parts:
            out[f"{parts[part]}.{kind}"] = tensor
    return out
