"""Stamps of every usual form are exact to the nanosecond; doubtful ones are not read."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.rows import RowError
from servetwin.workloads.tables.moments import Moments, date_orders, epoch_unit, is_iso

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NINE = 1_795_165_200 * 10**9
"""2026-11-20 09:00:00 UTC."""


def ns(cell: str, form: str = "", comma: bool = False) -> int | None:
    return Moments("ts", "arrival", form, comma).ns(cell)


@pytest.mark.parametrize(
    ("cell", "form", "after_ns"),
    [
        ("2026-11-20T09:00:00Z", "", 0),
        ("2026-11-20 09:00:00", "", 0),
        ("2026-11-20 09:00", "", 0),
        ("2026/11/20 09:00:00.5", "", 500_000_000),
        ("2026-11-20 09:00:00,310", "", 310_000_000),
        ("2026-11-20 09:00:00.123456789", "", 123_456_789),
        ("2026-11-20T10:00:00+01:00", "", 0),
        ("2026-11-20T10:00:00+0100", "", 0),
        ("2026-11-20T03:30:00 -05:30", "", 0),
        ("2026-11-20 09:00:00 UTC", "", 0),
        ("20.11.2026 09:00:00", "", 0),
        ("20/11/2026 09:00:00", "dmy", 0),
        ("11/20/2026 9:00:00 AM", "mdy", 0),
        ("11/20/2026, 9:00 PM", "mdy", 12 * 3600 * 10**9),
        ("1795165200", "", 0),
        ("1795165200.000000001", "s", 1),
        ("1795165200250", "", 250_000_000),
        ("1795165200000250", "us", 250_000),
        ("1795165200000000250", "", 250),
    ],
)
def test_forms(cell: str, form: str, after_ns: int) -> None:
    assert ns(cell, form) == NINE + after_ns


@pytest.mark.parametrize(
    ("cell", "form", "comma", "expected"),
    [
        ("0.31", "s", False, 310_000_000),
        ("0,31", "s", True, 310_000_000),
        ("310", "ms", False, 310_000_000),
        ("1e3", "ms", False, 10**9),
        ("0", "s", False, 0),
        (".5", "s", False, 500_000_000),
        ("12.5", "us", False, 12_500),
    ],
)
def test_numbers_in_a_unit(cell: str, form: str, comma: bool, expected: int) -> None:
    assert ns(cell, form, comma) == expected


@pytest.mark.parametrize(
    ("cell", "form", "reason"),
    [
        ("0.31", "", "in which unit? map arrival_s or arrival_ms"),
        ("01/02/2026 09:00:00", "", "day or month first? map arrival_dmy or arrival_mdy"),
        ("20/11/2026 09:00:00", "mdy", "no such day"),
        ("2026-11-20", "", "a date without a time of day"),
        ("2026-02-30 09:00:00", "", "no such day"),
        ("2026-11-20 24:00:00", "", "no such time"),
        ("2026-11-20 09:60:00", "", "no such time"),
        ("11/20/2026 13:00 PM", "mdy", "no such time"),
        ("-0.5", "s", "negative"),
        ("noon", "", "no time: wants a number"),
        ("0,5", "s", "a comma within a number"),
        ("1e300", "s", "beyond"),
        ("9" * 5000, "s", "beyond"),
    ],
)
def test_what_is_no_moment(cell: str, form: str, reason: str) -> None:
    with pytest.raises(RowError) as error:
        ns(cell, form)
    assert reason in error.value.reason


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("2026-11-20T09:00:00Z", "2026-11-20T09:00:01", "no time zone where the rows before have"),
        ("2026-11-20T09:00:00", "2026-11-20T09:00:01+01:00", "a time zone where the rows before"),
        ("1795165200", "5", "s where the rows before have s since 1970"),
        ("1795165200", "1795165200250", "s where the rows before have s since 1970"),
        ("5", "2026-11-20T09:00:00", "no time zone where the rows before have s"),
    ],
)
def test_rows_on_different_clocks_are_refused(first: str, second: str, reason: str) -> None:
    moments = Moments("ts", "arrival", "s", False)
    moments.ns(first)
    with pytest.raises(RowError) as error:
        moments.ns(second)
    assert reason in error.value.reason


def test_offsets_may_differ_and_a_missing_stamp_is_none() -> None:
    moments = Moments("ts", "arrival", "", False)
    assert moments.ns("2026-11-20T09:00:00Z") == moments.ns("2026-11-20T10:00:00+01:00") == NINE
    assert moments.ns("") is None


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)),
    st.integers(-14 * 60, 14 * 60),
)
def test_iso_stamps_are_those_of_the_standard_library(moment: datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (zoned - EPOCH) // timedelta(microseconds=1) * 1000
    assert ns(zoned.isoformat()) == expected
    assert is_iso(zoned.isoformat())


def test_orders_of_dates() -> None:
    assert date_orders("01/02/2026 09:00") == ("dmy", "mdy")
    assert date_orders("13/02/2026 09:00") == ("dmy",)
    assert date_orders("02-13-2026 09:00") == ("mdy",)
    assert date_orders("01.02.2026 09:00") == ("dmy",)
    assert date_orders("13/13/2026 09:00") == date_orders("2026-01-02 09:00") == ()


def test_units_since_1970() -> None:
    found = [epoch_unit("1795165200" + "0" * zeros) for zeros in range(10)]
    assert found == ["s", None, None, "ms", None, None, "us", None, None, "ns"]
    assert epoch_unit("1795165200.25") == "s"
    assert epoch_unit("0795165200") is None
