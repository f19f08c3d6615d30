"""The Dockerfile: no engine builds it here, so what can be held without one is held."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

from typer.main import get_command

from bough.cli.main import app

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_linter_has_nothing_to_say() -> None:
    linter = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_installs_the_torch_that_is_tested() -> None:
    pinned = re.findall(r"torch==(\S+)", DOCKERFILE)
    assert f"torch=={pinned[0]}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_what_it_copies_is_there_and_not_ignored() -> None:
    copied = [name for line in re.findall("COPY (.*) ", DOCKERFILE) for name in line.split()]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored


def test_its_command_is_one() -> None:
    words = re.findall('"([^"]+)"', DOCKERFILE.split("ENTRYPOINT")[1])
    verb = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    assert words[:2] == ["bough", "serve"]
    assert verb.make_context("serve", words[2:]).params["host"] == "0.0.0.0"
