"""The OpenAPI schema says exactly what is accepted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx

from bough.serve.schemas import INK
from tests.serving import Server, run


def test_the_schema_is_true(server: Server, tmp_path: Path) -> None:
    """schemathesis makes bodies inside and outside the schema, and holds the server to it."""
    command = [
        sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
        "run", f"{server.url}/openapi.json", "--checks", "all", "--max-examples", "15",
        "--generation-deterministic", "--no-color", "--suppress-health-check", "all",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "Tested: 5" in done.stdout


def test_the_schema_and_the_server_agree_what_is_blank() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    assert [c for c in characters if bool(re.search(INK, c)) != bool(c.strip())] == []
    assert r"\s" not in INK  # which JavaScript, Python and Rust read differently

    async def work(client: httpx.AsyncClient) -> None:
        for text, status in (("\ufeff", 200), ("\x85", 422), ("\x1c", 422), ("\u3000", 422)):
            found = await client.post("/predict", json={"texts": [text]})
            assert found.status_code == status, text

    run(work)
