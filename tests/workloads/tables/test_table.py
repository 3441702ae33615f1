"""Rows come alike from every delimiter and from JSON; a header that cannot be one is refused."""

import io
from pathlib import Path

import pytest

from servetwin.workloads.errors import TraceError
from servetwin.workloads.rows import BadRows, RowError, Rows
from servetwin.workloads.tables.table import Cells, Table, delimiter_of

ROWS = [(2, {"ts": "1.5", "in": "3", "said": "a, b"}), (3, {"ts": "2", "in": "4", "said": ""})]


def table(text: str) -> Table:
    return Table(Rows(Path("mine.csv"), io.StringIO(text), BadRows(0)))


def rows_of(found: Table) -> list[tuple[int, Cells]]:
    rows = []
    for line, cells in found.numbered():
        assert not isinstance(cells, RowError), cells
        rows.append((line, cells))
    return rows


@pytest.mark.parametrize(
    "text",
    [
        'ts,in,said\n1.5,3,"a, b"\n2,4,\n',
        "ts;in;said\n1.5;3;a, b\n2;4;\n",
        "ts\tin\tsaid\r\n1.5\t3\ta, b\r\n2\t4\t\r\n",
        "ts | in | said\n1.5 | 3 | a, b\n2|4|\n",
        '"ts";"in";"said"\n"1.5";"3";"a, b"\n2;4;\n',
    ],
)
def test_delimiters(text: str) -> None:
    assert rows_of(table(text)) == ROWS


def test_json_lines_and_arrays_are_tables_too() -> None:
    lines = '{"ts": 1.5, "in": 3, "said": "a, b"}\n{"ts": 2, "in": 4, "said": null}\n'
    assert rows_of(table(lines)) == [(line - 1, cells) for line, cells in ROWS]
    array = "[" + lines.replace("}\n{", "},\n{") + "]"
    assert rows_of(table(array)) == [(line - 1, cells) for line, cells in ROWS]


def test_nested_keys_are_joined_and_late_ones_are_known() -> None:
    found = table('{"a": {"b": {"c": true}}, "d": [1, 2]}\n{"e": 0.5}\n')
    assert found.names == ["a.b.c", "d", "e"]
    assert rows_of(found) == [(1, {"a.b.c": "true", "d": "[1, 2]"}), (2, {"e": "0.5"})]


def test_a_quoted_cell_may_have_line_ends() -> None:
    found = table('ts,said\n1,"two\nlines"\n2,x\n')
    assert [line for line, _ in rows_of(found)] == [2, 4]


def test_blank_and_empty_rows_are_left_out() -> None:
    assert len(rows_of(table("ts,in\n\n1,2\n,\n \n3,4\n"))) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ts,in,in\n1,2,3\n", "field 'in': columns 2 and 3 have this name; rename one"),
        ("1.5,3,4\n2,3,4\n", "values where the names of the columns belong"),
        ("2026-11-20 09:00:00;3;4\n", "values where the names of the columns belong"),
    ],
)
def test_bad_headers(text: str, says: str) -> None:
    with pytest.raises(TraceError, match=r"^mine\.csv:1: ") as error:
        table(text)
    assert says in str(error.value)


def test_columns_without_a_name_may_be_several() -> None:
    assert table(",ts,\n0,1,x\n").names == ["", "ts", ""]


def test_a_row_of_another_length_is_wrong_on_its_line() -> None:
    wrong = [(line, cells) for line, cells in table("ts,in\n1,2\n1\n1,2,3\n").numbered()]
    assert [(line, str(cells)) for line, cells in wrong[1:]] == [
        (3, "field 'in': the row has 1 cells where the header has 2 (\"1\")"),
        (4, "field 'row': the row has 3 cells where the header has 2 (\"1,2,3\")"),
    ]


def test_decimal_commas_are_of_the_table() -> None:
    assert table("ts;in\n0,5;3\n").comma
    assert not table("ts;in\n0.5;3\n").comma
    assert not table('ts,in\n"0,5",3\n').comma


def test_the_delimiter_is_the_most_frequent_outside_of_quotes() -> None:
    assert delimiter_of('"a,b,c";"d,e";f') == ";"
    assert delimiter_of("a,b;c,d") == ","
