"""Rows come alike from every delimiter and from JSON; a header that cannot be one is refused."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.rows import BadRows, Rows
from servetwin.workloads.tables.mapping import (
    KNOWN,
    form_of,
    mapping_text,
    missing_of,
    parse_mapping,
    quantity_of,
)
from servetwin.workloads.tables.table import Cells, Table, delimiter_of
from tests.support.trace_rows import Write

ROWS = [(2, {"ts": "1.5", "in": "3", "said": "a, b"}), (3, {"ts": "2", "in": "4", "said": ""})]


def table(text: str, bad: BadRows | None = None) -> Table:
    return Table(Rows(Path("mine.csv"), io.StringIO(text), bad or BadRows(0)))


def rows_of(found: Table) -> list[tuple[int, Cells]]:
    return found.parsed(lambda line, cells: (line, cells))


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
    bad = BadRows(2)
    assert rows_of(table("ts,in\n1,2\n1\n1,2,3\n", bad)) == [(2, {"ts": "1", "in": "2"})]
    assert bad.notes[1:] == (
        "mine.csv:3: field 'in': the row has 1 cells where the header has 2 (\"1\")",
        "mine.csv:4: field 'row': the row has 3 cells where the header has 2 (\"1,2,3\")",
    )


def test_decimal_commas_are_of_the_table() -> None:
    assert table("ts;in\n0,5;3\n").comma
    assert not table("ts;in\n0.5;3\n").comma
    assert not table('ts,in\n"0,5",3\n').comma


def test_the_delimiter_is_the_most_frequent_outside_of_quotes() -> None:
    assert delimiter_of('"a,b,c";"d,e";f') == ";"
    assert delimiter_of("a,b;c,d") == ","


COLUMN = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1)


@given(st.dictionaries(st.sampled_from(KNOWN), COLUMN, min_size=1, max_size=6))
def test_what_is_written_is_read(columns: dict[str, str]) -> None:
    once = {quantity_of(key): (key, name) for key, name in columns.items()}
    distinct = {name: key for key, name in once.values()}
    columns = {key: name for name, key in distinct.items()}
    assert parse_mapping(mapping_text(columns)) == columns


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "--map: empty"),
        ("arrival", "is not QUANTITY=COLUMN"),
        ("arrival_s=", "arrival_s names no column"),
        ("arival_s=ts", "unknown quantity 'arival_s'; did you mean 'arrival_s'"),
        ("ttft=x", "unknown quantity 'ttft'; did you mean 'ttft_s'"),
        ("ttft_dmy=x", "unknown quantity 'ttft_dmy'"),
        ("arrival_s=a,arrival_ms=b", "arrival is given twice"),
        ("prompt_tokens=a,output_tokens=a", "column 'a' is given twice"),
        ('"arrival_s=a', "is not QUANTITY=COLUMN"),
        ("arrival_s=a\nprompt_tokens=b", "has several lines"),
    ],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(TraceError, match=r"^--map") as error:
        parse_mapping(text)
    assert says in str(error.value)


def test_a_column_with_a_comma_is_quoted() -> None:
    text = '"arrival_s=time, s",prompt_tokens=in=put'
    assert parse_mapping(text) == {"arrival_s": "time, s", "prompt_tokens": "in=put"}


def test_texts_stand_for_counts() -> None:
    assert missing_of(["arrival_ms", "prompt", "output_tokens"]) == []
    assert missing_of(["arrival", "ttft_s"]) == [
        ("prompt_tokens", "prompt"),
        ("output_tokens", "answer"),
    ]


@pytest.mark.parametrize(
    ("key", "quantity", "form"),
    [
        ("arrival_ms", "arrival", "ms"),
        ("arrival_dmy", "arrival", "dmy"),
        ("arrival", "arrival", ""),
        ("first_token_ns", "first_token", "ns"),
        ("first_token", "first_token", ""),
        ("e2e_us", "e2e", "us"),
        ("prompt_tokens", "prompt_tokens", ""),
        ("session_id", "session_id", ""),
    ],
)
def test_a_key_has_a_quantity_and_a_form(key: str, quantity: str, form: str) -> None:
    assert (quantity_of(key), form_of(key)) == (quantity, form)


SESSIONS = """ts,prompt_tokens,output_tokens,session_id,latency_s,status
100,10,4,a,2,ok
103,20,4,a,1.5,ok
101,30,4,b,,ok
110,40,4,b,1,failed
104,50,4,a,1,ok
"""


def by_id(requests: list[Request]) -> dict[str, Request]:
    return {request.request_id: request for request in requests}


def test_a_row_follows_the_one_before_it_in_its_session(write: Write) -> None:
    text = SESSIONS.replace("ts,", "start_s,")
    found = by_id(list(read_trace(write(text), keep_failed=True)))
    links = {
        name[5:]: (r.parent_ids[0][5:] if r.parent_ids else None, r.turn, r.delay_s)
        for name, r in found.items()
    }
    assert links == {
        "1": (None, 0, None),
        "2": ("1", 1, 1.0),
        "5": ("2", 2, 0.0),
        "3": (None, 0, None),
        "4": ("3", 1, None),
    }


def test_prompts_of_one_prefix_share_their_first_blocks(write: Write) -> None:
    text = (
        "start_s,prompt_tokens,output_tokens,prefix_id,prefix_tokens\n"
        "0,100,4,p,48\n1,70,4,p,40\n2,100,4,q,48\n3,20,4,,\n4,30,4,p,48\n"
    )
    ids = [request.prefix_block_ids for request in read_trace(write(text))]
    assert [len(one) for one in ids] == [6, 4, 6, 0, 1]
    assert ids[0][:2] == ids[1][:2]
    assert ids[0][2] != ids[1][2]
    assert ids[4] == ids[0][:1]
    assert not {*ids[2]} & {*ids[0], *ids[1]}
    assert len({*ids[0], *ids[1], *ids[2]}) == 6 + 2 + 6


def test_ids_of_requests_stay_unless_they_are_taken(write: Write) -> None:
    text = "start_s,prompt_tokens,output_tokens,request_id\n0,1,4,x\n1,1,4,y\n2,1,4,x\n"
    assert [r.request_id for r in read_trace(write(text))] == ["x", "y", "some:3"]
