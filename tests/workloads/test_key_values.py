"""Numbers as people write them: finite ones in ASCII, and NaN for anything else."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.errors import PolicyError
from servetwin.workloads.program.key_values import MOST_NUMBER, key_values, number_in, share_in


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


@pytest.mark.parametrize("text", ["a=1,b=x,", ["a=1", " b = x "]])
def test_keys_are_parts_of_a_text_or_texts(text: str | list[str]) -> None:
    assert key_values(text, "--set") == {"a": "1", "b": "x"}
    assert key_values(["a=1,2"], "--set") == {"a": "1,2"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a=1,a=2", "--set: a is given twice; give it once"),
        (["a=1", "a=1"], "--set: a is given twice; give it once"),
        ("=1", "--set: '=1' is not KEY=VALUE"),
        (["a"], "--set: 'a' is not KEY=VALUE"),
    ],
)
def test_a_key_stands_once_and_has_a_name(text: str | list[str], says: str) -> None:
    with pytest.raises(PolicyError, match=f"^{says}$"):
        key_values(text, "--set")
