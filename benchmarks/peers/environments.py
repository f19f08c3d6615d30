"""Environments of their own for what is measured beside bough.

    python benchmarks/peers/environments.py [NAME ...] [--folder DIR]

Makes a virtual environment for each name (all, without one) and installs the peer into it with pip,
in the versions below. They lie outside the clone, in `bough/peers` in the user's cache folder, or
where BOUGH_PEERS or --folder says; a benchmark finds them there. None of them needs torch: models
come as ONNX files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

PACKAGES = {
    "openvino": ("openvino==2026.4.1", "nncf==3.4.0", "tokenizers==0.23.3", "onnx==1.23.2"),
    "onnxruntime": ("onnxruntime==1.31.1", "onnx==1.23.2", "tokenizers==0.23.3"),
}


def folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("BOUGH_PEERS") or f"{cache}/bough/peers").expanduser()


def python_of(name: str) -> Path | None:
    """The interpreter of a peer's environment, if it has been made."""
    python = folder() / name / "bin" / "python"
    return python if (folder() / name / "complete").exists() and python.exists() else None


def make(name: str) -> None:
    place = folder() / name
    venv.create(place, with_pip=True, clear=True)
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", *PACKAGES[name]]
    subprocess.run(command, check=True)
    (place / "complete").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PACKAGES))
    parser.add_argument("--folder", help="where they are made; set BOUGH_PEERS to find them again")
    args = parser.parse_args()
    if args.folder:
        os.environ["BOUGH_PEERS"] = args.folder
    failed = []
    for name in args.names or PACKAGES:
        if name not in PACKAGES:
            sys.exit(f"no peer {name!r}; there are {', '.join(PACKAGES)}")
        try:
            make(name)
            print(f"{name}: {folder() / name}")
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name}: could not be installed ({error})", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
