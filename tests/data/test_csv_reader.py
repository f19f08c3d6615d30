"""CSV and TSV as they are found: quotes, lines, headers, and one bad row that costs itself only."""

from __future__ import annotations

import csv
import threading

import pytest

from bough.data.csv_reader import CLOSED_EARLY, UNCLOSED, DelimitedFile
from tests.data.reading import CLASSIFY, REGRESS, Write, mistake, read


def test_lines_are_physical_lines(write: Write) -> None:
    path = write("a.csv", 'sentence,label\n"two\nlines",1\n\n"three\r\nlines\r\nhere",0\nlast,1\n')
    found = read(CLASSIFY, path)
    assert found.texts == [("two\nlines",), ("three\r\nlines\r\nhere",), ("last",)]
    assert found.lines == [2, 5, 8]
    assert found.ids == ["2", "5", "8"]


def test_quotes_that_quote_nothing(write: Write) -> None:
    """A tab-separated file written without quoting has fields that begin with a quote."""
    path = write(
        "a.tsv",
        'label\ta\tb\n1\t"Shut up" he said\tx\n2\tfive 5" disks\ty "z"\n'
        '3\t"quoted ""well""\tz"\tw\n4\t"open\tw\n5\tv\tclose"\n',
    )
    found = read(REGRESS, path)
    assert found.texts == [
        ('"Shut up" he said', "x"),
        ('five 5" disks', 'y "z"'),
        ('quoted "well"\tz', "w"),
        ('"open', "w"),
        ("v", 'close"'),
    ]
    assert found.lines == [2, 3, 4, 5, 6]
    assert "2 rows hold quotes" in found.notes[0]


def test_a_lost_quote_costs_its_row_only(write: Write) -> None:
    path = write("a.csv", 'sentence,label\nfine,1\n"lost,0\nbad,0\n"good, too",1\nend,1\n')
    said = mistake(CLASSIFY, path)
    assert f"{path} line 3: a quote opens a field and does not close it" in said
    assert "1 of 5 rows is bad" in said
    assert "rows: skip" in said
    found = read(CLASSIFY, path, "skip")
    assert found.texts == [("fine",), ("bad",), ("good, too",), ("end",)]
    assert [row.line for row in found.skipped] == [3]


def test_a_lost_quote_does_not_swallow_rows(write: Write) -> None:
    """Lines 2 to 6 would pass for one long quoted field."""
    body = "".join(f"{n},text {n},1\n" for n in range(3, 6))
    path = write("a.csv", f'id,sentence,label\n2,"lost,0\n{body}6,found",1\n')
    found = read(CLASSIFY, path, "skip")
    assert found.lines == [3, 4, 5, 6]
    assert "closes only on line 6" in found.skipped[0].why


def test_paragraphs_in_quotes_are_kept(write: Write) -> None:
    path = write("a.csv", 'sentence,label\n"Dear Sir,\nyes, indeed.\nbye",1\n')
    assert read(CLASSIFY, path).texts == [("Dear Sir,\nyes, indeed.\nbye",)]


def test_header_with_one_name_less(write: Write) -> None:
    path = write("a.csv", "sentence,label\n0,fine,1\n1,bad,0\n")
    found = read(CLASSIFY, path)
    assert found.texts == [("fine",), ("bad",)]
    assert "unnamed index" in found.notes[0]
    trailing = write("b.tsv", "sentence\tlabel\nfine\t1\t\nbad\t0\t\n")
    assert read(CLASSIFY, trailing).labels == [1, 0]


def test_rows_of_another_width(write: Write) -> None:
    path = write("a.csv", "sentence,label\nfine,1\na, b,0\nalone\n")
    assert "line 3: the row has 3 fields; expected 2" in mistake(CLASSIFY, path)
    assert "2 of 3 rows are bad" in mistake(CLASSIFY, path)
    assert len(read(CLASSIFY, path, "skip")) == 1


def test_a_document_longer_than_csv_likes(write: Write) -> None:
    limit = csv.field_size_limit()
    path = write("a.csv", f"sentence,label\n{'long ' * 50_000},1\n")
    assert len(read(CLASSIFY, path).texts[0][0]) == 249_999
    assert csv.field_size_limit() == limit


def test_header_only(write: Write) -> None:
    path = write("a.csv", "sentence,label\n\n")
    assert f"{path} has a header and no rows" in mistake(CLASSIFY, path)


def test_broken_header(write: Write) -> None:
    assert "the header has broken quoting" in mistake(CLASSIFY, write("a.csv", '"sentence,label\n'))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('"Shut up" he said,0', CLOSED_EARLY),
        ('"never closed,0', UNCLOSED),
        ("one,two,0", "the row has 3 fields; expected 2, as in the header"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(row: str, why: str) -> None:
    lines = ["sentence,label\n", "fine,1\n", f"{row}\n"]
    good, bad = DelimitedFile(lines, "a.csv", ["sentence", "label"])
    assert (good.cells, good.why) == (["fine", "1"], "")
    assert (bad.line, bad.text, bad.why) == (3, row, why)


def test_csvs_limit_is_everyones_and_stays() -> None:
    """Also while a file with long fields is read, and whatever others set it to."""
    limit = csv.field_size_limit()
    lines = ["sentence,label\n", *(f"{'long ' * 50_000}{n},1\n" for n in range(3))]
    rows = iter(DelimitedFile(lines, "a.csv", ["sentence"]))
    for number in range(3):
        assert next(rows).cells[0].endswith(f"long {number}")
        assert csv.field_size_limit() == limit
    threads = [threading.Thread(target=lambda: list(DelimitedFile(lines, "", []))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert csv.field_size_limit() == limit
