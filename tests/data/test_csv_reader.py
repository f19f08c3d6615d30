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


@pytest.mark.parametrize(
    ("row", "merged"),
    [
        ('7,"lost,good\n8,found",bad', True),
        ('7,"lost,good\n8,x,bad\n9,found",bad', True),
        ('7,"Well, I went\nand then, it was good",bad', False),
        ('7,"I went,\nit was, after all, good",bad', False),
        ('7,"Two\nlines",bad', False),
    ],
)
def test_a_lost_quote_that_makes_one_row_of_a_few_is_told(row: str, merged: bool) -> None:
    """By the ids and the classes, which no paragraph has at the end and the beginning of a line."""
    rest = [f"{n},text {n},{('good', 'bad')[n % 2]}\n" for n in range(20)]
    lines = ["id,sentence,label\n", *rest, *f"{row}\n".splitlines(keepends=True)]
    file = DelimitedFile(lines, "a.csv", ["sentence", "label"])
    assert len(list(file)) == 21
    assert len(file.notes) == merged
    if merged:
        assert file.notes[0] == (
            "a.csv: 1 row has a quoted field over several lines, each of which would do as a row "
            "(first on line 22); close the quote if one is lost there"
        )


def test_paragraphs_beside_numbers_are_no_rows() -> None:
    """Whose lines have as many commas as the table, by chance."""
    lines = ["sentence,score\n"]
    for n in range(50):
        lines += ['"Well, I went\n', f'and it was good",{n / 7}\n']
    file = DelimitedFile(lines, "a.csv", ["sentence", "score"])
    assert len(list(file)) == 50
    assert file.notes == ()


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
