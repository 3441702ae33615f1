"""Rows of a file that is one JSON array."""

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads import rows as json_array
from servetwin.workloads.rows import numbered_rows

VALUES = st.recursive(
    st.integers() | st.text() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def rows(text: str) -> tuple[bool, list[tuple[int, str]]]:
    is_array, numbered = numbered_rows(StringIO(text))
    return is_array, list(numbered)


@given(st.lists(VALUES, min_size=1, max_size=8), st.sampled_from([None, 1]), st.integers(1, 9))
def test_elements_are_cut_where_they_end(values: list[Any], indent: int | None, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "CHUNK_CHARACTERS", size)
        is_array, found = rows(json.dumps(values, indent=indent) + "\n")
    assert is_array
    assert [json.loads(text) for _, text in found] == values


def test_rows_have_the_line_on_which_they_begin() -> None:
    assert rows('\n[\n {"a":\n 1},\n\n {"b": 2}]\n') == (
        True,
        [(3, '{"a":\n 1}'), (6, '{"b": 2}')],
    )


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ('[{"a": 1}, {"b": ', '{"b":'),
        ('[{"a": 1}', '{"a": 1}'),
        ('[{"a": 1}] {"b": 2}', '] {"b": 2}'),
        ('[{"a": 1}, oops]', "oops]"),
        ("[", "[ without ]"),
    ],
)
def test_what_is_no_array_ends_in_a_row_that_is_no_json(text: str, last: str) -> None:
    found = rows(text)[1]
    assert found[-1] == (1, last)


def test_an_element_without_an_end_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "CHUNK_CHARACTERS", 10)
    monkeypatch.setattr(json_array, "LONGEST_ELEMENT", 100)
    ((_, row),) = rows('["' + 1000 * "x")[1]
    assert 100 <= len(row) < 500


@pytest.mark.parametrize("text", ["", "\n \n", "a,b\n1,2\n", '{"a": 1}\n', "\n\nx\n"])
def test_other_files_are_lines(text: str) -> None:
    is_array, found = rows(text)
    lines = [(line, row) for line, row in enumerate(text.split("\n"), 1) if row.strip()]
    assert not is_array
    assert [(line, row.strip()) for line, row in found if row.strip()] == lines
