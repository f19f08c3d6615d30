"""How the cost of an answer grows: with a text's length, the tasks, the batch and the encoder.

    python benchmarks/cost_growth.py [ENCODER ...] [--rounds 5] [-o docs/img/cost-growth.svg]

Asks `full` networks about random tokens, without the tokenizer, in every precision of this
machine: 32 texts of 16 to 512 tokens by three tasks; 32 texts of 32 tokens by 1 to 32 tasks; 1 to
256 texts of 32 tokens by three tasks. Draws milliseconds per text, the least of the rounds, as one
picture with a row for each encoder (`minilm`, without any), and prints them.
"""

from __future__ import annotations

import argparse
import html
import math
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from bough.data.packing import Pack
from bough.errors import UserError
from bough.inference.torch_model import MultiTaskModel
from bough.model.network import Network, plan_of
from bough.model.pretrained import Encoder, load
from bough.recipe.tasks import Task

GROWTH = {
    "tokens of a text": [16, 32, 64, 128, 256, 512],
    "tasks": [1, 2, 4, 8, 16, 32],
    "texts in a batch": [1, 4, 16, 64, 256],
}
COLOURS = {"fp32": "#7a6a53", "bf16": "#2f7d4f", "int8": "#b5532a"}
WIDTH, HEIGHT, LEFT, GAP = 250, 170, 60, 90
Line = list[tuple[int, float]]


def network(encoder: Encoder, tasks: int, precision: str) -> Network | None:
    one = Task(kind="classify", text="text", labels=("x", "y", "z"), pooling="cls")
    named = {f"task{n}": one for n in range(tasks)}
    made = Network.pretrained(plan_of("full", named, encoder.shape), named, encoder, 0)
    try:
        MultiTaskModel(made, encoder.tokenizer, 512).answer_in(precision)
    except UserError:
        return None
    return made


@torch.inference_mode()
def milliseconds(made: Network, texts: int, length: int, rounds: int) -> float:
    """Of one text, when `texts` of this length are answered together."""
    ids = torch.randint(5, made.shape.vocabulary, (texts * length,))
    positions = torch.arange(length).repeat(texts)
    pack = Pack(torch.stack([ids, torch.zeros_like(ids), positions], 1), (length,) * texts)
    index = dict.fromkeys(made.tasks, torch.arange(texts)[:, None])
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        made(pack, index)
        times.append(time.perf_counter() - began)
    return min(times[1:]) / texts * 1000


def grown(encoder: Encoder, precision: str, rounds: int) -> dict[str, Line] | None:
    three = network(encoder, 3, precision)
    if three is None:
        return None
    lengths, tasks, batches = GROWTH.values()
    longest = encoder.shape.longest
    many = {n: network(encoder, n, precision) for n in tasks}
    lines = (
        [(n, milliseconds(three, 32, n, rounds)) for n in lengths if n <= longest],
        [(n, milliseconds(made, 32, 32, rounds)) for n, made in many.items() if made is not None],
        [(n, milliseconds(three, n, 32, rounds)) for n in batches],
    )
    return dict(zip(GROWTH, lines, strict=True))


# The picture.


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten from just below to just above."""
    return [10.0**n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def panel(title: str, lines: dict[str, Line], scale: Sequence[float], x0: float, y0: float) -> str:
    numbers = [n for n, _ in next(iter(lines.values()))]

    def x(n: float) -> float:
        return x0 + WIDTH * math.log(n / numbers[0]) / math.log(numbers[-1] / numbers[0])

    def y(value: float) -> float:
        return y0 + HEIGHT * (1 - math.log(value / scale[0]) / math.log(scale[-1] / scale[0]))

    parts = [
        f'<path d="M{x0} {y(value):.1f}h{WIDTH}" stroke="#ddd"/>'
        f'<text x="{x0 - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in scale
    ]
    parts += [
        f'<text x="{x(n):.1f}" y="{y0 + HEIGHT + 16}" text-anchor="middle">{n}</text>'
        for n in numbers
    ]
    for precision, line in lines.items():
        points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in line)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[precision]}" '
            'stroke-width="2"/>'
        )
    parts.append(f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{html.escape(title)}</text>')
    return "".join(parts)


def picture(found: dict[str, dict[str, dict[str, Line]]]) -> str:
    """encoder -> precision -> what grows -> its line."""
    row = HEIGHT + GAP
    width, height = LEFT + len(GROWTH) * (WIDTH + GAP), 40 + len(found) * row
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" fill="#333">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for n, (precision, colour) in enumerate(COLOURS.items()):
        parts.append(f'<text x="{LEFT + 60 * n}" y="16" fill="{colour}">{precision}</text>')
    for number, (encoder, by_precision) in enumerate(found.items()):
        every = [
            value for lines in by_precision.values() for line in lines.values() for _, value in line
        ]
        scale = ticks(min(every), max(every))
        for column, growth in enumerate(GROWTH):
            lines = {precision: own[growth] for precision, own in by_precision.items()}
            left, top = LEFT + column * (WIDTH + GAP), 70 + number * row
            parts.append(panel(f"by {growth}", lines, scale, left, top))
        parts.append(
            f'<text x="{LEFT}" y="{40 + number * row}" font-size="14">'
            f"{html.escape(encoder)}: milliseconds of a text</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("encoders", nargs="*", metavar="ENCODER", default=["minilm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--out", default="docs/img/cost-growth.svg")
    args = parser.parse_args()
    found: dict[str, dict[str, dict[str, Line]]] = {}
    for name in args.encoders:
        encoder = load(name)
        for precision in COLOURS:
            lines = grown(encoder, precision, args.rounds)
            if lines is None:
                continue
            found.setdefault(Path(name).name, {})[precision] = lines
            for growth, line in lines.items():
                values = ", ".join(f"{n}: {value:.2f}" for n, value in line)
                print(f"{Path(name).name}, {precision}, ms per text by {growth}: {values}")
    Path(args.out).write_text(picture(found), encoding="utf-8")


if __name__ == "__main__":
    main()
