"""Tables in parts: no file is ever held whole, and its parts are the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bough.data import csv_reader, tables
from bough.data.prepared import streams


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_parts_of_a_table_are_the_table(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"in{ending}"
    told = [{"id": f"r{n}", "text": f"leaf {n}", "other": "x"} for n in range(11)]
    if ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(told), file)
    elif ending == ".jsonl":
        file.write_text("\n\n".join(map(json.dumps, told)) + "\nnone\n", encoding="utf-8")
    else:
        between = {".csv": ",", ".tsv": "\t"}[ending]
        lines = [between.join(row.values()) for row in told]
        lines[5] = f'r5{between}"leaf\n5"{between}x'  # over two lines
        text = "\n".join([between.join(told[0]), *lines, "", "broken", ""])
        file.write_text(text, encoding="utf-8")
    wanted = tables.Wanted(("text", "missing"), "", False)
    whole = streams.open_table(str(file), wanted, tmp_path, "")
    monkeypatch.setattr(tables, "PART", 3)
    monkeypatch.setattr(csv_reader, "LOOK", 2)  # lines are forgotten soon
    assert len(list(tables.parts(file, wanted))) == 4
    assert streams.open_table(str(file), wanted, tmp_path, "") == whole
    assert whole.columns.keys() == {"text", "id"}
    assert len(whole.lines) == 11
    assert len(whole.broken) == (ending != ".parquet")


def test_a_parquet_file_is_never_held_whole(tmp_path: Path) -> None:
    file = tmp_path / "in.parquet"
    told = pyarrow.table({"text": [f"{'leaf ' * 100}{n * 7919}" for n in range(100_000)]})
    pyarrow.parquet.write_table(  # all in one group of rows
        told, file, row_group_size=len(told), compression="none", use_dictionary=False
    )
    code = (
        "import sys, pyarrow; from pathlib import Path; from bough.data import tables\n"
        "wanted = tables.Wanted(('text',), '', False)\n"
        "assert sum(len(p.lines) for p in tables.parts(Path(sys.argv[1]), wanted)) == 100_000\n"
        "print(pyarrow.default_memory_pool().max_memory())"
    )
    command = [sys.executable, "-c", code, str(file)]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert peak < file.stat().st_size / 4
