"""The model of a recipe before its first step: the plan's cells on a pretrained encoder."""

from __future__ import annotations

from pathlib import Path

from bough.data.dataset import Data
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from bough.model.network import Network, plan_of
from bough.recipe.recipe import Recipe


def build(recipe: Recipe, data: Data) -> tuple[MultiTaskModel, list[str]]:
    """The untrained model of a recipe, and what there is to say about its encoder."""
    encoder = pretrained.load(recipe.encoder)
    plan = plan_of(recipe.plan, data.tasks, encoder.shape)
    network = Network.pretrained(plan, data.tasks, encoder, recipe.training.seed)
    longest = min(recipe.max_length, encoder.shape.longest)
    notes = []
    if plan.pooled and not encoder.weights("pooler"):
        notes.append(f"encoder {encoder.source!r} has no pooler; a fresh one is trained with it")
    if encoder.unused:
        names = ", ".join(encoder.unused[:3]) + (", ..." if len(encoder.unused) > 3 else "")
        notes.append(f"of the encoder, not used: {names} ({len(encoder.unused)} in all)")
    # A model may be shown to others, who need not know the folders of this machine.
    called = Path(encoder.source)
    name = called.name if called.is_absolute() else encoder.source
    facts = {"encoder": name, "saw_quora": encoder.saw_quora}
    return MultiTaskModel(network, encoder.tokenizer, longest, facts), notes
