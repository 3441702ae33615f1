"""Reading the fields of a record: nested keys, numbers, times of any unit."""

from collections.abc import Mapping
from typing import Any

from servetwin.workloads.fields import MAX_COUNT, stamp_ns
from servetwin.workloads.rows import RowError
from servetwin.workloads.tables import mapping

# Seconds of each unit of time.
UNITS_S = {**mapping.UNITS_S, "sec": 1.0, "seconds": 1.0}
# Of any number: nanoseconds since 1970 until the year 2286.
MOST = 1e19


def within(record: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path; None where a key is missing.

    Raises ``RowError`` where a part of the path is no object.
    """
    value: Any = record
    keys = path.split("/")
    for depth, key in enumerate(keys):
        value = fields_of(".".join(keys[:depth]), value).get(key)
    return value


def has(record: Mapping[str, Any], path: str) -> bool:
    """Return whether there is something at a path, which may lead through lists."""
    value: Any = record
    for key in path.split("/"):
        if isinstance(value, list):
            value = {str(at): item for at, item in enumerate(value[:1])}
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


def number(name: str, value: Any) -> float:
    """Return a finite number; raise ``RowError`` for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise RowError(name, "not a number", value) from None
    if type(value) not in (int, float) or not abs(value) <= MOST:
        raise RowError(name, "missing" if value is None else "not a number", value)
    return float(value)


def fields_of(name: str, value: Any) -> Mapping[str, Any]:
    """Return an object; an empty one where it is missing."""
    if not isinstance(value or {}, dict):
        raise RowError(name, "not a JSON object", value)
    return value or {}


def items_of(name: str, value: Any) -> list[Any]:
    """Return a list; an empty one where it is missing."""
    if not isinstance(value or [], list):
        raise RowError(name, "not a list", value)
    return value or []


def objects_of(name: str, value: Any) -> list[Mapping[str, Any]]:
    """Return a list of objects; an empty one where it is missing."""
    return [fields_of(f"{name}[{at}]", item) for at, item in enumerate(items_of(name, value))]


def numbers(name: str, value: Any) -> tuple[float, ...]:
    """Return a list of finite numbers."""
    if not isinstance(value, list):
        raise RowError(name, "not a list of numbers", value)
    return tuple(number(name, one) for one in value)


def count(name: str, value: Any) -> int:
    """Return a whole number from 0 on."""
    whole = number(name, value)
    if whole < 0 or whole != int(whole):
        raise RowError(name, "not a whole number from 0 on", value)
    if whole > MAX_COUNT:
        raise RowError(name, f"beyond {MAX_COUNT}", value)
    return int(whole)


def moment_s(name: str, value: Any, unit_s: float = 1.0) -> float | None:
    """Return a time stamp in seconds: a number times ``unit_s``, or ISO 8601 text."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return stamp_ns(name, value) / 1e9
    return unit_s * number(name, value)
