"""Rows of CSV files, torn ones among them."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.input_files import InputFile, csv_records, csv_rows

HEAD = "id,gpus,name\n"


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., InputFile]:
    def write(text: str, strict: bool = False) -> InputFile:
        path = tmp_path / "t.csv"
        path.write_text(text, newline="")
        return InputFile(path, strict)

    return write


def ids(source: InputFile) -> list[str]:
    return [row["id"] for _, row in csv_records(source, ("id",))]


@pytest.mark.parametrize(
    ("text", "kept", "first"),
    [
        (HEAD + '1,1,"a\n2,1,b\n3,1,c\n', ["2", "3"], 2),  # to the end of the file
        (HEAD + '1,1,a\n2,1,"b', ["1"], 3),  # in the last row
        (HEAD + '1,1,"a\n2,1,b\n3,1,"c, d"\n4,1,e\n', ["2", "3", "4"], 2),  # to a quote of another row
        (HEAD + '1,1,"a\n2,1,"b\n3,1,c\n', ["3"], 2),  # two of them
        (HEAD + '1,"a,b\n2,1,b\n3,"c",d\n', ["2", "3"], 2),  # and fewer fields before it
        (HEAD + '1,1,"a\r\n2,1,b\r\n', ["2"], 2),
        (HEAD + '1,1,"a\n' + "2,1,b\n" * 40_000, ["2"] * 40_000, 2),  # longer than csv takes a field for
    ],
)
def test_records__an_open_quote_costs_its_own_row(written, text, kept, first):
    """The rows behind it are read, and the row is counted with its line."""
    source = written(text)
    assert ids(source) == kept
    assert source.rejected == len([line for line in text.splitlines() if line.count('"') == 1])
    assert source.first_rejected.startswith(f"line {first}: a quote in it is not closed")
    with pytest.raises(InputError, match=f"t.csv:{first}: a quote in it is not closed"):
        ids(written(text, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        HEAD + '1,1,"two\nlines, and ""words"""\n2,1,b\n',
        HEAD + '1,1,6" pipe\n2,1,5" pipe\n',
        HEAD + '1,1,"6"" pipe"\n2,1,"a"b\n',
        HEAD + "\n1,1,a\n\n2,1,b\n",
        HEAD + '"1\nof, two, lines",1,a\n2,1,b\n',
        HEAD + '1,"x, y\nz, w, v",a\n',
        HEAD + '1,1,"{\n""a"":1,""b"":2,""c"":3}"\n',
        'id\n"1\n1"\n2\n',
    ],
)
def test_rows__are_those_of_csv_where_nothing_is_torn(written, text):
    """Text over several lines, quotes within a field, blank lines, a single column."""
    source = written(text)
    reader = csv.reader(text.splitlines(keepends=True))
    assert list(csv_rows(source)) == [(reader.line_num, fields) for fields in reader]
    assert not source.rejected


def test_rows__a_line_too_long_for_csv_is_an_error(written):
    """It is no table."""
    with pytest.raises(InputError, match="field larger than field limit"):
        list(csv_rows(written("a" * 200_000)))


def test_records__give_none_for_what_a_row_lacks(written):
    """And leave out what has no name."""
    rows = csv_records(written(HEAD + "1\n2,1,b,c\n"), ("id",))
    assert list(rows) == [(2, {"id": "1", "gpus": None, "name": None}), (3, {"id": "2", "gpus": "1", "name": "b"})]
