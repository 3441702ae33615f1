"""Any CSV file, JSON array or JSON Lines, by a mapping of its columns: ``arrival_s=ts,...``.

A time names its unit (``arrival_ms``) or is ISO 8601; nested JSON keys are joined by dots.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.recorded.fields import UNITS_S, count, moment_s, within
from loadtest.recorded.recording import Record, RecordedRequest, Recording
from workloads.errors import TraceError, did_you_mean
from workloads.key_values import key_values
from workloads.rows import RowError

_STAMPS = ("arrival", "first_token", "last_token")
_DURATIONS = ("ttft", "e2e", "queue")
_OTHERS = ("request_id", "prompt_tokens", "output_tokens", "cached_tokens", "error")
_TIMES = tuple(f"{name}_{unit}" for name in (*_STAMPS, *_DURATIONS) for unit in UNITS_S)
KNOWN = (*_OTHERS, *_TIMES)
"""What a column can be mapped to."""


def parse_mapping(text: str) -> dict[str, str]:
    """Return the column of each quantity.

    Raises ``TraceError`` for an unknown quantity, or where arrivals or token counts are missing.
    """
    columns = key_values(text, "--map", TraceError, "QUANTITY=COLUMN")
    for name in columns:
        if name not in KNOWN:
            raise TraceError(f"--map: unknown quantity {name!r}; {did_you_mean(name, KNOWN)}")
    for name in ("prompt_tokens", "output_tokens"):
        if name not in columns:
            raise TraceError(f"--map: {name} is missing; write {name}=COLUMN")
    return columns


def read(records: Sequence[Record], columns: Mapping[str, str]) -> Recording:
    """Read a request of each record."""
    first = records[0].fields
    for name, column in columns.items():
        if within(first, *_keys(first, column)) is None and not any(
            within(one.fields, *_keys(one.fields, column)) is not None for one in records
        ):
            hint = did_you_mean(column, first, f"it has {', '.join(first)}")
            raise TraceError(f"--map: {name}: no column {column!r}; {hint}")
    requests = [_request(at, record, columns) for at, record in enumerate(records)]
    return Recording("mapped columns", requests, ("no stamps of single tokens",))


def _keys(record: Mapping[str, Any], column: str) -> list[str]:
    return [column] if column in record else column.split(".")


def _request(at: int, record: Record, columns: Mapping[str, str]) -> RecordedRequest:
    said = {name: within(record.fields, *_keys(record.fields, c)) for name, c in columns.items()}
    try:
        arrival_s, first_s, last_s = (_time(said, name) for name in _STAMPS)
        ttft_s, e2e_s, queue_s = (_time(said, name) for name in _DURATIONS)
        start_s = arrival_s or 0.0
        return RecordedRequest(
            str(said.get("request_id") or at),
            count(columns["prompt_tokens"], said["prompt_tokens"]),
            count(columns["output_tokens"], said["output_tokens"]),
            arrival_s,
            start_s + ttft_s if ttft_s is not None else first_s,
            start_s + e2e_s if e2e_s is not None else last_s,
            queue_s=queue_s,
            cached_tokens=None
            if (hit := said.get("cached_tokens")) is None
            else count("cached_tokens", hit),
            error=str(said["error"]) if said.get("error") else None,
        )
    except RowError as error:
        raise error.inside(record.place) from None


def _time(said: Mapping[str, Any], name: str) -> float | None:
    for unit, unit_s in UNITS_S.items():
        if f"{name}_{unit}" in said:
            return moment_s(f"{name}_{unit}", said[f"{name}_{unit}"], unit_s)
    return None
