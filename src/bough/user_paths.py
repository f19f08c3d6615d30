"""Paths that a user names: seen from the right folder, and what is wrong with a bad one."""

from __future__ import annotations

import difflib
from pathlib import Path

from bough.errors import UserError, shorten


def place(path: str, root: Path) -> Path:
    """A path of the recipe, seen from `root`; `~` is the home folder."""
    try:
        return root / Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{path}: there is no such home folder; write the path out") from None


def read_bytes(path: Path) -> bytes:
    """The file's bytes, or what is wrong with its name."""
    check_name(path)
    try:
        return path.read_bytes()
    except OSError as fault:
        raise unreadable(path, fault) from None


def check_name(path: Path) -> None:
    """Refuse a name that leads to no file."""
    try:
        if path.is_dir():
            raise UserError(f"{path} is a folder; name a file in it")
        if not path.exists():
            raise UserError(f"{path} does not exist{_neighbour(path)}")
        if not path.is_file():
            raise UserError(f"{path} is no regular file; write its contents to one")
    except (OSError, ValueError) as fault:
        raise unreadable(path, fault) from None


def unreadable(path: Path, fault: OSError | ValueError) -> UserError:
    why = fault.strerror if isinstance(fault, OSError) and fault.strerror else fault
    return UserError(f"{shorten(str(path), 200)} cannot be read: {why}")


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f" (nor does its folder {path.parent})"
    return similar_file(path)


def similar_file(path: Path) -> str:
    """`; did you mean 'x'?` when a file of nearly that name is there, else nothing."""
    if not path.parent.is_dir():
        return ""
    # Endings are alike, and would make any short name look close.
    known = {other.stem: other.name for other in path.parent.iterdir() if other.is_file()}
    close = difflib.get_close_matches(path.stem, known, n=1, cutoff=0.65)
    return f"; did you mean {known[close[0]]!r}?" if close else ""
