"""A mapping of columns is read from one text, and written as the text that reads the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import TraceError
from servetwin.workloads.tables.mapping import (
    KNOWN,
    form_of,
    mapping_text,
    missing_of,
    parse_mapping,
    quantity_of,
)

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
