"""Numbers as people write them: finite ones in ASCII, and NaN for anything else."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.program.key_values import MOST_NUMBER, number_in, share_in


@pytest.mark.parametrize(
    ("text", "number"),
    [("2", 2.0), (" 2.5 ", 2.5), ("-1e3", -1e3), ("1e12", MOST_NUMBER), ("-1e12", -MOST_NUMBER)],
)
def test_numbers_are_read(text: str, number: float) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize(
    "text", ["", "x", "2x", "nan", "inf", "-inf", "1e400", "1.1e12", "２", "٣"]
)
def test_anything_else_is_in_no_range(text: str) -> None:
    assert isnan(number_in(text))
    assert isnan(share_in(f"{text}%"))


@given(st.floats(-MOST_NUMBER, MOST_NUMBER))
def test_what_is_written_is_read_to_the_last_bit(number: float) -> None:
    assert number_in(repr(number)) == number


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0)])
def test_shares_are_parts_or_per_cent(text: str, share: float) -> None:
    assert share_in(text) == share


@pytest.mark.parametrize("text", ["%", "5%%", "5 % of", "five"])
def test_other_shares_are_none(text: str) -> None:
    assert isnan(share_in(text))
