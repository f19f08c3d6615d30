"""Whether what a run learns from and runs on is still what it began with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bough.data.dataset import Data
from bough.errors import UserError
from bough.runs.run_dir import Run


def changed_rows(run: Run, data: Data) -> Iterator[tuple[str, str, str]]:
    """The tasks and splits whose rows are not those of the run, and where the rows come from."""
    before = run.environment.get("data", {})
    for name, splits in data.digests().items():
        for split, known in splits.items():
            if before.get(name, {}).get(split, known)["sha256"] != known["sha256"]:
                yield name, split, data.part(name, split).source


def check(
    run: Run,
    data: Data,
    encoder: str,
    encoder_digests: Mapping[str, str],
    say: Callable[[str], None],
    *,
    here: Mapping[str, Any],
    processes: int,
    teachers: Mapping[str, str],
) -> None:
    """Rows or tokens that changed since the run began would make it go on as neither run."""
    for name, split, source in changed_rows(run, data):
        raise UserError(
            f"{run.folder}: the {split} rows of task {name!r} ({source}) have changed since "
            "the run began; put them back to resume it, or train anew"
        )
    before = run.environment
    for part, digest in encoder_digests.items():
        if before.get(part, digest) == digest:  # runs of before have none
            continue
        if part == "tokenizer":
            raise UserError(
                f"{run.folder}: the tokenizer of encoder {encoder!r} is another "
                "than when the run began; put it back to resume it, or train anew"
            )
        say(
            f"the weights of encoder {encoder!r} are others than when the run "
            "began; it goes on with its own, from the checkpoint"
        )
    for name, digest in teachers.items():
        if before.get("teachers", {}).get(name) != digest:
            raise UserError(
                f"{run.folder}: the teachers of task {name!r} answer otherwise than when the run "
                "began; put them back to resume it, or train anew"
            )
    for what in ("threads", "kernels"):
        if before.get(what, here[what]) != here[what]:
            began, now = (f"{where[what]} {what}" for where in (before, here))
            say(
                f"the run began with {began} and goes on with {now}: "
                "results may differ in the last bits"
            )
    if (began := before.get("processes", 1)) != processes:
        say(
            f"processes: the run began with {began} and goes on with {processes}; its sums differ "
            "in the last bits, and what dropout leaves out is another choice"
        )
