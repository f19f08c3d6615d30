"""A trained model at work: predict, serve, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bough.cli.common import RunPath
from bough.errors import UserError, shorten


def predict(
    run: RunPath,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE|-]", help="Texts: .txt, .csv, .tsv, .jsonl, .parquet; - for stdin."
        ),
    ] = "-",
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="T", help="Only this task (repeatable).")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text", metavar="COLUMN", help="A table's text, if not by its name (twice: a pair)."
        ),
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out rows that cannot be read, and name them.")
    ] = False,
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
        if text or skip:
            raise UserError(
                "--format cs224n has its own columns and rows; leave --text, --skip out"
            )
        _submit(run, file, task, out, form)
        return
    if file != "-" and not Path(file).exists():  # said before anything is loaded
        raise UserError(
            f"{shorten(file)}: no such file; to answer a text itself: echo TEXT | bough predict RUN"
        )
    from bough.inference.inputs import Choice
    from bough.inference.predict import answer_file

    answer_file(run, file, out, Choice(tuple(task or ()), tuple(text or ()), skip))


def _submit(run: Path, file: str, task: list[str] | None, out: Path | None, form: str) -> None:
    if form != "cs224n":
        raise UserError(f"--format {form!r}: expected cs224n; other forms follow from -o's ending")
    if task:
        raise UserError("--format cs224n answers all of the course's tasks; leave --task out")
    from bough.inference.submission import submit

    for line in submit(run, None if file == "-" else file, out):
        print(line)


def serve(
    run: RunPath,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "cpu",
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
        from bough.serve.app import Settings
        from bough.serve.main import serve as start
    except ModuleNotFoundError as error:
        missing = f"serving needs {error.name}"
        raise UserError(f"{missing}, of the serve extra: pip install 'bough[serve]'") from None
    from bough.inference.torch_model import device_of
    from bough.serve.requests import Limits
    from bough.system import cores

    device = str(device_of(device))
    start(
        run,
        Settings(
            limits=Limits(body, texts, characters, queue, timeout),
            threads=threads or (cores() if device == "cpu" else 1),
            tokens=tokens,
            key=None if api_key is None else api_key.strip(),
            origins=tuple(cors or ()),
        ),
        host,
        port,
        device,
        runtime,
    )


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
        raise UserError("give either --onnx DIR or --transformers DIR")
    if onnx is not None:
        if task is not None or trunk:
            raise UserError("--task and --trunk are for --transformers; ONNX has all tasks at once")
        from bough.export.onnx_export import write_onnx

        folder = write_onnx(run, onnx, int8=int8, tolerance=tolerance)
        print(f"{folder}: serve it with: bough serve {folder} --runtime onnx")
        return
    assert transformers is not None
    if int8:
        raise UserError("--int8 is for --onnx; a checkpoint for transformers is in fp32")
    from bough.export.transformers_export import write_transformers

    print(write_transformers(run, transformers, task, trunk))
