"""bough serve: a trained model answers over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from bough.cli.arguments import ModelPath, PrecisionName
from bough.errors import UserError
from bough.extras import install_line

HostNames = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A name to be asked by (repeatable); * is any."),
]
PerClient = Annotated[
    int | None, typer.Option(min=1, help="Requests that an address may have under way.")
]
ShowExamples = Annotated[
    bool | None,
    typer.Option(
        "--show-examples/--hide-examples",
        help="Show the model's dev rows on the page; by default on loopback only.",
    ),
]


def serve(
    run: ModelPath,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "cpu",
    precision: PrecisionName = "auto",
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that answer, with the weights in common.")
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Passes at a time of a worker; on the CPU all have one per core."),
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
    host_name: HostNames = None,
    per_client: PerClient = None,
    show_examples: ShowExamples = None,
) -> None:
    """Answer over HTTP, with a page to try the model."""
    try:
        from bough.serve.main import serve as start
        from bough.serve.settings import LOCAL, Limits, Settings
    except ModuleNotFoundError as error:
        missing = f"serving needs {error.name}"
        raise UserError(f"{missing}, of the serve extra: {install_line('serve')}") from None
    from bough.inference.device import device_of
    from bough.machine_limits import cores

    device = str(device_of(device))
    start(
        run,
        Settings(
            limits=Limits(body, texts, characters, queue, timeout),
            workers=workers,
            threads=threads or (max(1, cores() // workers) if device == "cpu" else 1),
            tokens=tokens,
            key=None if api_key is None else api_key.strip(),
            origins=tuple(cors or ()),
            hosts=(*LOCAL, *(name.lower() for name in host_name or ())),
            per_client=per_client,
            show_examples=show_examples,
        ),
        host,
        port,
        device,
        precision,
    )
