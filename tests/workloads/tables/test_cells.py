"""Counts, durations and states as people's files have them; what could be two things is refused."""

import pytest

from servetwin.workloads.rows import RowError
from servetwin.workloads.tables.moments import (
    cell_count,
    cell_duration_s,
    error_of,
    has_decimal_comma,
    is_missing,
    status_of,
)


@pytest.mark.parametrize(
    ("cell", "count"), [("412", 412), ("412.0", 412), ("412,0", 412), ("+4", 4), ("0", 0)]
)
def test_counts(cell: str, count: int) -> None:
    assert cell_count("in", cell, 0) == count


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("", "missing"),
        ("NaN", "missing"),
        ("4x", "not an integer"),
        ("4.5", "not an integer"),
        ("1.000", "thousands separator"),
        ("1,000", "thousands separator"),
        ("1,234,567", "thousands separator"),
        ("-4", "negative"),
        ("0", "at least 1"),
        ("3000000000", "beyond 2147483647"),
        ("１２", "not an integer"),
        ("1e3", "not an integer"),
    ],
)
def test_what_is_no_count(cell: str, reason: str) -> None:
    with pytest.raises(RowError) as error:
        cell_count("in", cell, 1)
    assert reason in error.value.reason


@pytest.mark.parametrize(
    ("cell", "comma", "seconds"),
    [("80", False, 0.08), ("0.5", False, 0.0005), ("0,5", True, 0.0005), ("1e3", False, 1.0)],
)
def test_durations(cell: str, comma: bool, seconds: float) -> None:
    assert cell_duration_s("ttft", cell, 1e-3, comma) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("cell", "comma", "reason"),
    [
        ("-80", False, "a negative duration"),
        ("0,5", False, "a comma within a number"),
        ("1,234.5", False, "a comma within a number"),
        ("0.5", True, "a point where other rows"),
        ("1.234,5", True, "a comma within a number"),
        ("fast", False, "not a number"),
        ("so,so", True, "not a number"),
        ("1e400", False, "beyond"),
        ("inf", False, "not a number"),
    ],
)
def test_what_is_no_duration(cell: str, comma: bool, reason: str) -> None:
    with pytest.raises(RowError) as error:
        cell_duration_s("ttft", cell, 1e-3, comma)
    assert reason in error.value.reason


def test_missing_durations_are_none() -> None:
    assert [cell_duration_s("ttft", cell, 1.0, False) for cell in ("", "nan", "-", "NULL")] == [
        None
    ] * 4
    assert not is_missing("0")


@pytest.mark.parametrize(
    ("cell", "worked"),
    [
        ("200", True),
        ("204", True),
        ("200.0", True),
        ("429", False),
        ("500", False),
        ("302", False),
        ("OK", True),
        ("Completed", True),
        ("stop", True),
        ("length", True),
        ("true", True),
        ("failed", False),
        ("Timed out", False),
        ("rate-limited", False),
        ("False", False),
        ("0", None),
        ("1", None),
        ("", None),
        ("weird", None),
        ("20", None),
        ("2000", None),
    ],
)
def test_states(cell: str, worked: bool | None) -> None:
    assert status_of(cell) is worked


def test_errors() -> None:
    assert [error_of(cell) for cell in ("", "None", "false", "0")] == [None] * 4
    assert error_of("timeout") == "timeout"


def test_decimal_commas() -> None:
    assert has_decimal_comma("0,31")
    assert not any(map(has_decimal_comma, ("0.31", "31", "1,2,3", "a,b", ",5")))
