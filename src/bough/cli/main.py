"""The command line: which verbs there are, and how a verb that fails ends."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from bough import __version__
from bough.cli import compare, evaluate, export, graft, plan, predict, serve, survey, train
from bough.cli.arguments import fail
from bough.errors import UserError
from bough.runs.lock import LockedError

app = typer.Typer(
    name="bough",
    help="One text encoder, several tasks: choose what they share, see what it costs and gains.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(busy: int = 2) -> None:
    """Run a verb; mistakes of the user end in one sentence and exit code 2.

    `busy` is the code where another process has what is to be written: whoever started a worker has
    to tell that from a mistake.
    """
    # As after Ctrl-C, what was half-written is removed; training and serving do more of their own.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        app()
    except LockedError as error:
        fail(str(error), busy)
    except UserError as error:
        fail(str(error), 2)
    except OSError as error:  # a full disk, a folder that may not be written
        if error.strerror is None:
            raise
        fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror, 1)
    finally:  # while Python ends, nothing of ours would catch what the signal raises
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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


# In the order of the help.
app.command()(train.init)
app.command()(train.check)
app.command()(train.train)
app.command()(train.pretrain)
app.command("eval")(evaluate.evaluate)
app.command()(predict.predict)
app.command()(serve.serve)
app.command()(export.export)
app.command()(graft.graft)
app.command()(graft.soup)
app.command()(plan.plan)
app.command()(compare.compare)
app.command()(compare.report)
app.command()(survey.survey)
app.command()(survey.studies)
app.command()(train.schema)
app.command()(survey.demo)
