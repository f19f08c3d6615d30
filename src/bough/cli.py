"""The verbs: parse, call, print. What needs torch is imported by the verb that needs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bough import __version__
from bough.mistakes import Mistake

if TYPE_CHECKING:
    from bough.survey import Result

app = typer.Typer(
    name="bough",
    help="One text encoder, several tasks: choose what they share, see what it costs and gains.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory or a model folder.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. training.lr=1e-4."),
]


def main() -> None:
    """Run a verb; mistakes of the user end in one sentence and exit code 2."""
    try:
        app()
    except Mistake as mistake:
        _fail(str(mistake), 2)
    except OSError as error:  # a full disk, a folder that may not be written
        if error.strerror is None:
            raise
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1)


def _fail(sentence: str, code: int) -> NoReturn:
    print(f"bough: {sentence}", file=sys.stderr)
    raise SystemExit(code) from None


def _version(asked: bool) -> None:
    if asked:
        print(f"bough {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def init(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Data: .csv, .tsv, .jsonl or .parquet."),
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
    from bough.init import init as write

    for line in write(files, out, text or (), label or ()).lines():
        print(line)


@app.command()
def train(
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE", help="A recipe file.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="RUN", help="Where the run is written.")
    ] = None,
    overrides: Set = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a stopped run.")
    ] = None,
    mirror: Annotated[
        list[str] | None,
        typer.Option(metavar="M", help="Log to tensorboard or wandb, too (repeatable)."),
    ] = None,
) -> None:
    """Train the tasks of a recipe."""
    if (recipe is None) == (resume is None):
        raise Mistake("give either a recipe to train, or --resume and the run to go on with")
    if resume is not None and (out is not None or overrides):
        raise Mistake(
            "--resume goes on with the run's own recipe and place; leave -o and --set out"
        )
    from bough.display import for_terminal
    from bough.mirrors import mirrored
    from bough.training import new_folder
    from bough.training import resume as go_on
    from bough.training import train as start

    folder = resume or out or new_folder(recipe)
    display = mirrored(for_terminal(), mirror or (), folder)
    with _interruptible(folder):
        if resume is not None:
            run = go_on(folder, display)
        else:
            assert recipe is not None
            run = start(recipe, folder, overrides or (), display)
    _print_scores(run.scores, run.folder)
    print(f"\nNext: bough predict {run.folder} FILE   or   bough eval {run.folder}")


@contextmanager
def _interruptible(run: Path) -> Iterator[None]:
    from bough.training import Failed, Stopped

    try:
        yield
    except Stopped as stop:
        _fail(str(stop), 130)
    except KeyboardInterrupt:  # at once, or while no step is at hand
        begun = (run / "recipe.yaml").exists()
        _fail(f"interrupted{f'; go on with: bough train --resume {run}' if begun else ''}", 130)
    except Failed as failure:
        _fail(str(failure), 1)


@app.command("eval")
def evaluate(
    run: RunPath,
    split: Annotated[str, typer.Option(help="Which rows: dev, test or train.")] = "dev",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a run's best model on one of its splits."""
    from bough.training import judge

    scores = judge(run, split)
    if as_json:
        print(json.dumps({split: scores}, indent=1))
    else:
        _print_scores({split: scores}, run)


@app.command()
def predict(
    run: RunPath,
    file: Annotated[
        str,
        typer.Argument(metavar="[FILE|-]", help="Texts: .txt, .csv, .tsv, .jsonl; - for stdin."),
    ] = "-",
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="T", help="Only this task (repeatable).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="A .csv or .jsonl file.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="F",
            help="cs224n: the course's files for its test sets, into the folder -o; FILE is where "
            "those are, if not where the run's recipe says.",
        ),
    ] = None,
) -> None:
    """Answer texts: one line each (a tab between the texts of a pair), or a table's columns."""
    if form is not None:
        _submit(run, file, task, out, form)
        return
    from bough.answering import answer_file

    answer_file(run, file, task, out)


def _submit(run: Path, file: str, task: list[str] | None, out: Path | None, form: str) -> None:
    if form != "cs224n":
        raise Mistake(f"--format {form!r}: expected cs224n; other forms follow from -o's ending")
    if task:
        raise Mistake("--format cs224n answers all of the course's tasks; leave --task out")
    from bough.submission import submit

    for line in submit(run, None if file == "-" else file, out):
        print(line)


@app.command()
def serve(
    run: RunPath,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N or mps.")] = "cpu",
    runtime: Annotated[
        str, typer.Option(help="torch, or onnx for a folder of bough export.")
    ] = "torch",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Passes at a time; on the CPU one per core.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of one pass, about.")] = 1024,
    queue: Annotated[int, typer.Option(help="Texts that may wait; more get 503.")] = 1024,
    texts: Annotated[int, typer.Option(help="Texts that a request may have.")] = 256,
    characters: Annotated[int, typer.Option(help="Characters that a text may have.")] = 20_000,
    body: Annotated[int, typer.Option(help="Bytes that a request's body may have.")] = 4 * 2**20,
    timeout: Annotated[float, typer.Option(help="Seconds until a request is given up.")] = 30,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="BOUGH_API_KEY", help="Ask clients for this key.", show_envvar=True),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Let this site's pages ask (repeatable)."),
    ] = None,
) -> None:
    """Answer over HTTP, with a page to try the model."""
    try:
        from bough.server import Settings, cores
        from bough.server import serve as start
    except ModuleNotFoundError as error:
        missing = f"serving needs {error.name}"
        raise Mistake(f"{missing}, of the serve extra: pip install 'bough[serve]'") from None
    from bough.wire import Limits

    start(
        run,
        Settings(
            limits=Limits(body, texts, characters, queue, timeout),
            threads=threads or (cores() if device == "cpu" else 1),
            tokens=tokens,
            key=api_key or None,
            origins=tuple(cors or ()),
        ),
        host,
        port,
        device,
        runtime,
    )


@app.command()
def export(
    run: RunPath,
    onnx: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all tasks as one ONNX graph.")
    ] = None,
    transformers: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a checkpoint for transformers.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights in int8, if the dev scores allow it.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(min=0, help="How much of a dev score int8 may cost a task.")
    ] = 0.01,
    task: Annotated[
        str | None, typer.Option(metavar="T", help="For transformers: this task, or its trunk.")
    ] = None,
    trunk: Annotated[
        bool, typer.Option("--trunk", help="For transformers: only the trunk of --task.")
    ] = False,
) -> None:
    """Write a model for other runtimes."""
    if (onnx is None) == (transformers is None):
        raise Mistake("give either --onnx DIR or --transformers DIR")
    if onnx is not None:
        if task is not None or trunk:
            raise Mistake("--task and --trunk are for --transformers; ONNX has all tasks at once")
        from bough.export import write_onnx

        print(write_onnx(run, onnx, int8=int8, tolerance=tolerance))
        return
    assert transformers is not None
    if int8:
        raise Mistake("--int8 is for --onnx; a checkpoint for transformers is in fp32")
    from bough.checkpoint import write_transformers

    print(write_transformers(run, transformers, task, trunk))


@app.command()
def plan(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A plan, e.g. 'split@3, pal:64'.")],
    tasks: Annotated[
        str, typer.Option(help="Tasks, with the number of outputs if not 1: sst:5,para,sts.")
    ] = "a,b,c",
    encoder: Annotated[
        str | None, typer.Option(metavar="E", help="An encoder folder (its config.json is enough).")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Layers, instead of an encoder.")
    ] = None,
    length: Annotated[int, typer.Option(help="Tokens of a text, for the FLOPs.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a plan as a table, with what it costs."""
    from bough.cost import cost
    from bough.families import Shape
    from bough.plan import Plan

    if encoder is not None and layers is not None:
        raise Mistake("give --encoder or --layers, not both")
    outputs = _outputs(tasks)
    shape = Shape.read(_folder(encoder)) if encoder is not None else None
    depth = shape.layers if shape is not None else layers if layers is not None else 12
    heads = shape.heads if shape is not None else 12
    found = Plan.parse(text, tuple(outputs), depth, heads=heads)
    if shape is None:
        shape = _bert_like(depth)
    told = cost(found, shape, outputs, length=length)
    if as_json:
        table = [{"place": label, "names": names} for label, names in found.table()]
        print(
            json.dumps(
                {"plan": found.text, "tasks": list(outputs), "table": table} | told.as_dict(),
                indent=1,
            )
        )
    else:
        print(f"{found}\n\n{told}")


def _outputs(tasks: str) -> dict[str, int]:
    outputs: dict[str, int] = {}
    for part in tasks.split(","):
        name, colon, number = part.strip().partition(":")
        if not name or (colon and not number.isdecimal()) or number == "0" or name in outputs:
            raise Mistake(
                f"--tasks {tasks!r}: expected different names like a,b,c or sst:5,para,sts"
            )
        outputs[name] = int(number or 1)
    return outputs


def _folder(encoder: str) -> Path:
    if Path(encoder).expanduser().exists():
        return Path(encoder).expanduser()
    from bough.encoder import find

    return find(encoder)


def _bert_like(layers: int) -> Any:
    from bough.families import Shape

    if layers < 1:
        raise Mistake(f"--layers {layers}: a trunk has at least one layer")
    return Shape("bert", 768, layers, 12, 3072, 30522, 512, 2, 768, 0, "gelu", 1e-12)


Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run directories, surveys, folders of runs.")
]
Baseline = Annotated[
    str | None, typer.Option(metavar="LABEL", help="The variant that the others are held against.")
]
Split = Annotated[str, typer.Option(help="Which rows: dev or test.")]
Tasks = Annotated[
    str | None, typer.Option("--tasks", metavar="A,B", help="Only these tasks, where runs differ.")
]


@app.command()
def compare(
    runs: Runs,
    baseline: Baseline = None,
    split: Split = "dev",
    tasks: Tasks = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the tables as Markdown, too.")
    ] = None,
) -> None:
    """Say what runs score, what they cost, and which differences are real."""
    from bough import findings
    from bough.compare import compare as make
    from bough.files import write_atomically

    found = make(runs, baseline=baseline, split=split, tasks=tasks.split(",") if tasks else None)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        findings.show(found)
    if markdown is not None:
        write_atomically(markdown, findings.markdown(found))


@app.command()
def report(
    runs: Runs,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="An .html file, or .md.")
    ] = Path("report.html"),
    baseline: Baseline = None,
    split: Split = "dev",
    tasks: Tasks = None,
) -> None:
    """Write the comparison of runs as one page that opens offline."""
    from bough.report import write

    asked = tasks.split(",") if tasks else None
    print(write(runs, out, baseline=baseline, split=split, tasks=asked))


@app.command()
def survey(
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE|SURVEY", help="A survey file, or the directory of one begun."),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Where the runs are written.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="NAME", help="How large: a budget of the file.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time; cores are shared.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option(metavar="CELL", help="Only this cell (repeatable).")
    ] = None,
    keep: Annotated[
        str, typer.Option(help="Of finished runs: scores, models, or all (checkpoints too).")
    ] = "models",
    retry: Annotated[bool, typer.Option("--retry", help="Try failed runs again.")] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="Check it and list its runs, and do not run them.")
    ] = False,
) -> None:
    """Run many recipes: a grid or a search, times seeds. Ctrl-C is safe: ask again to go on."""
    from bough import survey as surveys

    if listing:
        surveys.show(source, out, budget, workers, only or ())
        return
    result = surveys.conduct(
        source, out=out, budget=budget, workers=workers, only=only or (), keep=keep, retry=retry
    )
    _conclude(result, f"bough survey {result.folder}")
    print(f"\n{result}")


def _conclude(result: Result, again: str) -> None:
    """A survey that did not come to its end says so by its exit code."""
    if result.stopped:
        _fail(f"stopped; go on with: {again}", 130)
    if result.failed:
        _fail(str(result), 1)


@app.command()
def studies() -> None:
    """List the published studies that come as surveys: what was asked, printed and found."""
    from bough.studies import show

    show()


@app.command()
def schema() -> None:
    """Print the JSON schema of a recipe."""
    from bough.recipe import schema as make

    print(json.dumps(make(), indent=1))


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Where the runs are written.")
    ] = Path("runs/demo"),
) -> None:
    """Train three tasks under three plans on data that comes with bough, compare, and report."""
    from bough.demo.show import show

    _conclude(show(out), f"bough demo -o {out}")


def _print_scores(scores: dict[str, Any], folder: Path) -> None:
    """A table per split, and a word on tasks whose data the encoder has seen before."""
    from bough.card import quora
    from bough.display import print_scores
    from bough.model import load

    print_scores(scores, str(folder))
    model = load(folder)
    for task in sorted(quora(model.tasks, model.facts)):
        print(
            f"The score of {task} is not clean: the encoder saw Quora's duplicate questions "
            "when it was pretrained."
        )
