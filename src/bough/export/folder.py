"""A folder to export into: complete, or not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bough.errors import UserError
from bough.plan.encoder_shape import Shape


def check_leaves(shape: Shape, form: str) -> None:
    """Refuse what a form of export has no place for, whatever the tasks."""
    if shape.tagger:
        raise UserError(
            f"the model sees parts of speech (parts_of_speech: {shape.tagger}), which {form} has "
            "no tagger for; serve it with bough, or train without them"
        )


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder to fill that takes its name only when all went well."""
    folder = Path(folder).expanduser().absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"{folder}: already there and not an empty folder; choose another, or remove it"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    """What new folders are kept from; asking the system means setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
