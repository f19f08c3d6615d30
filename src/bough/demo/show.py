"""The demo: a frozen probe and a fine-tuned model on the embedded tasks, side by side."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bough import demo
from bough.display import Display, for_terminal
from bough.mistakes import Mistake
from bough.model import Answer, MultiTaskModel, Text, load
from bough.recipe import Recipe
from bough.runs import Run
from bough.train import train

SHOWN = 3  # samples of each task
# A linear probe of the fixed encoder: what the pretrained vectors already know.
PROBE = ["plan=full, frozen", "training.lr=1e-3"]


def show(out: Path) -> None:
    """Train both, print their scores, answer a few sentences, say what to do next."""
    console = Console(highlight=False)
    began = time.monotonic()
    recipe = Recipe.read(demo.recipe())
    console.print(
        "[bold]bough[/]: three tasks, one encoder (all-MiniLM-L6-v2, 22.7 M parameters)\n"
    )
    runs: dict[str, Run] = {}
    for name, overrides in (("frozen probe", PROBE), ("fine-tuned", [])):
        console.print(f"[bold]{name}[/]")
        folder = out / name.replace(" ", "-")
        _clear(folder)
        display: Display = for_terminal()
        runs[name] = train(Recipe.read(recipe, overrides), folder, display=display)
    _table(console, runs)
    model = load(runs["fine-tuned"].folder)
    _answers(console, model)
    console.print(f"\n{model.plan}\n")
    console.print(f"[dim]{time.monotonic() - began:.0f} seconds. Next:[/]")
    folder = runs["fine-tuned"].folder
    for line in (
        f"echo 'Not bad at all.' | bough predict {folder}",
        f"bough train {demo.recipe()} --set plan=split@3 -o runs/split",
        "bough plan 'split@3, pal:64' --tasks sentiment:5,questions,similarity --encoder minilm",
    ):
        console.print(f"  {line}", soft_wrap=True)


def _clear(folder: Path) -> None:
    """The demo's own earlier runs may go; anything else stays."""
    if not folder.exists():
        return
    if not (folder / "recipe.yaml").is_file():
        raise Mistake(f"{folder}: is in the way and is not a run; choose another place with -o")
    shutil.rmtree(folder)


def _table(console: Console, runs: dict[str, Run]) -> None:
    console.print("\nscores on the dev rows")
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    first = next(iter(runs.values())).scores["dev"]
    for task, own in first["tasks"].items():
        table.add_column(f"{task}\n{own['metric']}", justify="right", no_wrap=True)
    for heading in ("raw", "normalised", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, run in runs.items():
        scores = run.scores["dev"]
        found = [f"{own[own['metric']]:.3f}" for own in scores["tasks"].values()]
        seconds = f"{run.cost['training_seconds']:.0f}"
        table.add_row(name, *found, f"{scores['raw']:.3f}", f"{scores['normalised']:.3f}", seconds)
    console.print(table)


def _answers(console: Console, model: MultiTaskModel) -> None:
    """Fresh sentences; a pair is answered by both tasks on pairs, from one pass of the encoder."""
    texts = [text for own in demo.SAMPLES.values() for text in own[:SHOWN]]
    asked: list[Text] = [text[0] if len(text) == 1 else (text[0], text[1]) for text in texts]
    console.print("\nwhat the fine-tuned model says about new sentences\n")
    for text, found in zip(texts, model.predict(asked), strict=True):
        said = "   ".join(f"{task}: [bold]{_shown(answer)}[/]" for task, answer in found.items())
        console.print("  " + escape("\n  ".join(text)))
        console.print(f"    {said}")


def _shown(answer: Answer) -> str:
    if answer.value is not None:
        return f"{answer.value:.1f}"
    return f"{escape(str(answer.label))} ({answer.score:.0%})"
