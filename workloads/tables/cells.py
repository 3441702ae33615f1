"""Cells of a table: counts, durations, numbers with decimal commas, whether a request failed."""

import re
from functools import lru_cache

from servetwin.workloads.fields import MAX_COUNT, MAX_SECONDS
from servetwin.workloads.rows import RowError

_MISSING = frozenset(("", "nan", "null", "none", "na", "n/a", "nil", "-", "\\n", "<na>", "nat"))
_NUMBER = re.compile(r"(?a)[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"(?a)[+-]?\d+,\d+")
_GROUPED = re.compile(r"(?a)[+-]?\d{1,3}(?:[.,]\d{3})+")
_WHOLE = re.compile(r"(?a)([+-]?\d{1,18})(?:[.,](?:0{1,2}|0{4,}))?")
_WORKED = frozenset((
    "ok", "success", "successful", "succeeded", "complete", "completed", "done", "finished",
    "true", "yes", "stop", "length", "stopped", "eos", "end_turn", "max_tokens", "tool_calls",
    "tool_use", "function_call", "stop_sequence", "content_filter",
))  # fmt: skip
_FAILED = frozenset((
    "failed", "failure", "fail", "error", "err", "errored", "exception", "timeout", "timed_out",
    "timedout", "cancelled", "canceled", "aborted", "abort", "rejected", "dropped",
    "disconnected", "ratelimited", "rate_limited", "overloaded", "false", "no", "incomplete",
))  # fmt: skip
_NO_ERROR = frozenset(("0", "false", "no", "ok", "[]", "{}"))
_CODE = re.compile(r"(?a)[1-5]\d\d(?:\.0)?")


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty, or says that there is no value."""
    return not cell or cell.lower() in _MISSING


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with one comma, as in 0,31."""
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def plain_number(name: str, cell: str, comma: bool) -> str:
    """Return a number with a decimal point; ``comma`` says that the table has decimal commas.

    Raises ``RowError`` also for a cell that could be two numbers.
    """
    if "," in cell:
        if not comma or "." in cell or not _DECIMAL_COMMA.fullmatch(cell):
            reason = "a comma within a number: write it without thousands separators"
            raise RowError(name, reason if _is_number_like(cell) else "not a number", cell)
        return cell.replace(",", ".")
    if comma and "." in cell:
        raise RowError(name, "a point where other rows have decimal commas", cell)
    if not _NUMBER.fullmatch(cell):
        raise RowError(name, "not a number", cell)
    return cell


def cell_count(name: str, cell: str, minimum: int) -> int:
    """Return a count; 412.0 is one, and 1.000, which may be 1 or 1000, is none."""
    match = _WHOLE.fullmatch(cell)
    if not match:
        if is_missing(cell):
            raise RowError(name, "missing", cell)
        if _GROUPED.fullmatch(cell):
            raise RowError(name, "a thousands separator? write the count in digits alone", cell)
        raise RowError(name, "not an integer", cell)
    value = int(match[1])
    if value < minimum:
        raise RowError(name, "negative" if value < 0 else f"must be at least {minimum}", value)
    if value > MAX_COUNT:
        raise RowError(name, f"beyond {MAX_COUNT}", value)
    return value


def cell_duration_s(name: str, cell: str, unit_s: float, comma: bool) -> float | None:
    """Return a duration in seconds; None where it is missing. Raises ``RowError``."""
    if is_missing(cell):
        return None
    value = float(plain_number(name, cell, comma)) * unit_s
    if value < 0:
        raise RowError(name, "a negative duration", cell)
    if not value <= MAX_SECONDS:
        raise RowError(name, f"beyond {MAX_SECONDS:.10g} s", cell)
    return value


@lru_cache(maxsize=1024)
def status_of(cell: str) -> bool | None:
    """Return whether a request was answered, by its HTTP code or a word; None where unclear."""
    if _CODE.fullmatch(cell):
        return cell[0] == "2"
    word = cell.lower().replace("-", "_").replace(" ", "_")
    return True if word in _WORKED else False if word in _FAILED else None


def error_of(cell: str) -> str | None:
    """Return the error that a cell names; None where it says that there was none."""
    return None if is_missing(cell) or cell.lower() in _NO_ERROR else cell


def _is_number_like(cell: str) -> bool:
    return not set(cell) - set("+-0123456789.,")
