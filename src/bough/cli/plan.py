"""bough plan: what a plan shares and costs, before anything is trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bough.cli.arguments import AsJson
from bough.errors import UserError

if TYPE_CHECKING:
    from bough.plan.encoder_pooling import EncoderPooling
    from bough.plan.encoder_shape import Shape


def plan(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A plan, e.g. 'split@3, pal:64'.")],
    tasks: Annotated[
        str, typer.Option(help="Tasks, with the number of outputs if not 1: sst:5,para,sts.")
    ] = "a,b,c",
    encoder: Annotated[
        str | None,
        typer.Option(metavar="E", help="A folder (config.json is enough) or a name; else minilm."),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Layers as BERT-base's (12), instead of an encoder."),
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a text, for the FLOPs.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Show a plan as a table, with what it costs."""
    from bough.plan.cost import cost
    from bough.plan.plan import Plan

    if encoder is not None and layers is not None:
        raise UserError("give --encoder or --layers, not both")
    outputs = _outputs(tasks)
    encoder = _default() if encoder is None and layers is None else encoder
    shape, pooling = (
        _bert_like(12 if layers is None else layers) if encoder is None else _read(encoder)
    )
    pooled = tuple(outputs) if pooling.name == "pooler" else ()
    parsed = Plan.parse(text, tuple(outputs), shape.layers, heads=shape.heads, pooled=pooled)
    means = tuple(outputs) if pooling.name == "mean" else ()
    costs = cost(parsed, shape, outputs, length, means=means)
    if as_json:
        table = [{"place": label, "names": names} for label, names in parsed.table()]
        print(
            json.dumps(
                {"plan": parsed.text, "tasks": list(outputs), "table": table} | costs.as_dict(),
                indent=1,
            )
        )
    else:
        print(f"{parsed}\n\n{costs}")
        if encoder is None:
            print("\nSizes as in BERT-base; --encoder takes those of another.")
        else:
            print(f"\nencoder: {encoder}; pooling: {pooling}")


def _outputs(tasks: str) -> dict[str, int]:
    outputs: dict[str, int] = {}
    for part in tasks.split(","):
        name, colon, number = part.strip().partition(":")
        if not name or (colon and not number.isdecimal()) or number == "0" or name in outputs:
            raise UserError(
                f"--tasks {tasks!r}: expected different names like a,b,c or sst:5,para,sts"
            )
        outputs[name] = int(number or 1)
    return outputs


def _default() -> str | None:
    """The encoder of a recipe that names none, if it is here."""
    from bough.model.pretrained import find
    from bough.recipe.recipe import Recipe

    encoder = str(Recipe.model_fields["encoder"].default)
    try:
        find(encoder)
    except UserError:
        return None
    return encoder


def _folder(encoder: str) -> Path:
    if Path(encoder).expanduser().exists():
        return Path(encoder).expanduser()
    from bough.model.pretrained import find

    return find(encoder)


def _read(encoder: str) -> tuple[Shape, EncoderPooling]:
    from bough.plan.encoder_pooling import has_pooler, read_pooling
    from bough.plan.encoder_shape import Shape

    place = _folder(encoder)
    folder = place if place.is_dir() else place.parent
    shape = Shape.read(place)
    shape = replace(shape, pooler=has_pooler(folder, shape.pooler))
    return shape, read_pooling(folder, shape, [encoder])


def _bert_like(layers: int) -> tuple[Shape, EncoderPooling]:
    from bough.plan.encoder_pooling import EncoderPooling
    from bough.plan.encoder_shape import Shape

    if layers < 1:
        raise UserError(f"--layers {layers}: a trunk has at least one layer")
    shape = Shape("bert", 768, layers, 12, 3072, 30522, 512, 2, 768, 0, "gelu", 1e-12)
    return shape, EncoderPooling("pooler", "as in BERT-base")
