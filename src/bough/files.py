"""Files that are either the old or the new one, never half of it: write aside, sync, rename."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class DiskFullError(OSError):
    """No room left; what was there before is still there."""


def write_atomically(path: Path, content: str | bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    data = content.encode() if isinstance(content, str) else content
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        aside.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"no space left to write {path} ({len(data) / 1e6:,.1f} MB); "
                "the last complete file was kept"
            ) from None
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system can."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
