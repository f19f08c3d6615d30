"""Optional packages: what an extra of bough's stands for, as a line to type."""

from __future__ import annotations

import shlex
from importlib import metadata


def install_line(extra: str) -> str:
    """The packages by their names: the `bough` that PyPI knows is another project."""
    marker = f"extra == '{extra}'"
    try:
        every = metadata.requires("bough") or ()
    except metadata.PackageNotFoundError:  # it runs from a folder
        return f"pip install '.[{extra}]' in bough's clone"
    needed = (text.partition(";") for text in every)
    packages = [name.strip() for name, _, when in needed if marker in when.replace('"', "'")]
    return f"pip install {shlex.join(packages)}"
