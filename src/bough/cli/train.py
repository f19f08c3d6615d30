"""From data to a trained model: bough init, train, pretrain and schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bough.cli.arguments import Threads, fail, settle_threads
from bough.distributed import PeerLostError, launched_count, launched_rank
from bough.errors import UserError
from bough.safe_text import shown

if TYPE_CHECKING:
    from bough.recipe.recipe import Recipe
    from bough.runs.console import Announcing

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. training.lr=1e-4."),
]


def init(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Data: .csv, .tsv, .jsonl, .parquet or .conll."),
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="RECIPE", help="Where the recipe is written.")
    ] = Path("recipe.yaml"),
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="The text's column; give it twice for a pair."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="The label's column; several make several tasks."),
    ] = None,
) -> None:
    """Look at data files, guess the tasks and write a recipe that trains them."""
    from bough.data.drafting.init_recipe import init as write

    for line in write(files, out, text or (), label or ()).lines():
        print(shown(line))


def train(
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE", help="A recipe file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="RUN", help="Where to; else runs/RECIPE'S-NAME."),
    ] = None,
    overrides: Set = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a stopped run.")
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option(metavar="M", help="Log to tensorboard or wandb, too (repeatable)."),
    ] = None,
    threads: Threads = None,
) -> None:
    """Train the tasks of a recipe."""
    # What is wrong with it is said at once, before torch is loaded.
    experiment = _experiment(recipe, overrides or [], resume, out)
    from bough.inference import config
    from bough.recipe.quora_caveat import caveats
    from bough.runs.console import Announcing, for_terminal, print_scores
    from bough.runs.trackers import tracked
    from bough.training.train import new_folder
    from bough.training.train import resume as go_on
    from bough.training.train import train as start

    folder = resume or out or new_folder(recipe)
    display = Announcing(tracked(for_terminal(), mirror or (), folder))
    with _interruptible(folder):
        if experiment is None:
            number = settle_threads(threads, _began_with(folder), display.announce)
            run = go_on(folder, display, threads=number)
        else:
            run = start(_settled(experiment, threads, display), folder, display=display)
    if launched_rank():
        return
    model = config.read(run.model)
    print_scores(run.scores, str(run.folder))
    for sentence in caveats(model.tasks, model.facts.model_dump()):
        print(sentence)
    print(shown(f"\nNext: bough predict {run.folder} FILE   or   bough eval {run.folder}"))


def check(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe file.")],
    overrides: Set = None,
    threads: Threads = None,
) -> None:
    """Try a recipe without training it: its rows, its plan, and how long it would take."""
    experiment = _experiment(recipe, overrides or [], None, None)
    assert experiment is not None
    from bough.runs.console import Announcing, Lines
    from bough.training.check import check as tried

    display = Announcing(Lines())
    found = tried(_settled(experiment, threads, display), display=display)
    print(shown(f"{recipe} can be trained."))
    print(shown(str(found)))


def pretrain(
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE", help="A recipe file.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="RUN", help="Else runs/RECIPE'S-NAME-pretrained."),
    ] = None,
    overrides: Set = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a stopped run.")
    ] = None,
    threads: Threads = None,
) -> None:
    """Train a recipe's encoder further on its texts, by guessing masked words."""
    experiment = _experiment(recipe, overrides or [], resume, out)
    from bough.pretraining.pretrain import ENDING
    from bough.pretraining.pretrain import pretrain as start
    from bough.pretraining.pretrain import resume as go_on
    from bough.runs.console import Announcing, for_terminal
    from bough.training.train import new_folder

    folder = resume or out or new_folder(recipe, ENDING)
    display = Announcing(for_terminal())
    with _interruptible(folder, "pretrain"):
        if experiment is None:
            number = settle_threads(threads, _began_with(folder), display.announce)
            run = go_on(folder, display, number)
        else:
            run = start(_settled(experiment, threads, display), folder, display=display)
    if launched_rank():
        return
    before, after = (run.scores[when]["tasks"]["texts"] for when in ("before", "after"))
    print(
        f"{after['rows']:,} masked tokens held out: loss {before['loss']:.3f} -> "
        f"{after['loss']:.3f}, perplexity {before['perplexity']:.1f} -> {after['perplexity']:.1f}, "
        f"guessed {before['accuracy']:.1%} -> {after['accuracy']:.1%}"
    )
    print(shown(f"\nNext: bough train RECIPE --set encoder={run.folder}"))


def _experiment(
    recipe: Path | None, overrides: list[str], resume: Path | None, out: Path | None
) -> Recipe | None:
    """The recipe of a new run, checked; None for one that is gone on with."""
    if (recipe is None) == (resume is None):
        raise UserError("give either a recipe to train, or --resume and the run to go on with")
    if resume is not None and (out is not None or overrides):
        raise UserError(
            "--resume goes on with the run's own recipe and place; leave -o and --set out"
        )
    if recipe is None:
        return None
    from bough.data.tables import READERS
    from bough.recipe.recipe import Recipe

    if recipe.suffix.lower() in READERS:
        raise UserError(f"{recipe} holds rows, not a recipe; write one for it: bough init {recipe}")
    return Recipe.read(recipe, overrides)


def _settled(experiment: Recipe, threads: int | None, display: Announcing) -> Recipe:
    """The recipe once torch's threads are set, as the command line or the recipe has them."""
    if threads is not None:
        experiment = experiment.model_copy(update={"threads": None})
    if experiment.threads is None:
        settle_threads(threads, announce=display.announce)
    return experiment


def _began_with(folder: Path) -> int | None:
    """The threads of a run on as many processes: with others it would not go on bit for bit."""
    from bough.runs.run_dir import Run

    run = Run.open(folder)
    if not run.environment_file.is_file():  # it was killed while it began
        return None
    before = run.environment
    same = before.get("processes", 1) == launched_count()
    return before.get("threads") if same else None


@contextmanager
def _interruptible(run: Path, verb: str = "train") -> Iterator[None]:
    from bough.training.loop import Failed, Stopped

    try:
        yield
    except Stopped as stop:
        fail(str(stop), 130)
    except KeyboardInterrupt:  # at once, or while no step is at hand
        begun = (run / "recipe.yaml").exists()
        fail(f"interrupted{f'; go on with: bough {verb} --resume {run}' if begun else ''}", 130)
    except PeerLostError as lost:
        begun = (run / "recipe.yaml").exists()
        fail(f"{lost}{f'; go on with: bough {verb} --resume {run}' if begun else ''}", 1)
    except Failed as failure:
        fail(str(failure), 1)


def schema() -> None:
    """Print the JSON schema of a recipe."""
    from bough.recipe.recipe import schema as make

    print(json.dumps(make(), indent=1))
