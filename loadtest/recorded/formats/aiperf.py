"""The ``profile_export.jsonl`` of AIPerf: an object with metadata and metrics per request.

Every metric is a value and its unit; stamps of metadata are nanoseconds since 1970.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.loadtest.recorded.fields import UNITS_S, count, fields_of, number, numbers, within
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.workloads.rows import RowError

_CACHED = "usage_prompt_cache_read_tokens"
"""Prompt tokens that the server found in its prefix cache, where its usage says so."""


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record has metadata with the start of a request, and metrics."""
    return within(record, "metadata", "request_start_ns") is not None and "metrics" in record


def read(records: Sequence[Record]) -> Recording:
    """Read the requests of the profiling phase."""
    requests, warm_ups = [], 0
    for record in records:
        if within(record.fields, "metadata", "benchmark_phase") in (None, "profiling"):
            requests.append(_request(record))
        else:
            warm_ups += 1
    notes = (f"{warm_ups} requests of the warm-up left out",) if warm_ups else ()
    return Recording("AIPerf", requests, notes)


def _request(record: Record) -> RecordedRequest:
    fields = record.fields
    try:
        metadata = fields_of("metadata", fields.get("metadata"))
        metrics = fields_of("metrics", fields.get("metrics"))
        arrival_s = number("metadata.request_start_ns", metadata.get("request_start_ns")) / 1e9
        name = str(metadata.get("x_request_id") or record.place)
        if error := fields.get("error"):
            prompt_tokens = count("error_isl", within(metrics, "error_isl", "value") or 0)
            reason = str(within(error, "type") or error)
            return RecordedRequest(name, prompt_tokens, 0, arrival_s, error=reason)
        first_s = arrival_s + _seconds(metrics, "time_to_first_token")
        last_s = arrival_s + _seconds(metrics, "request_latency")
        return RecordedRequest(
            name,
            _tokens(metrics, "input_sequence_length"),
            _tokens(metrics, "output_sequence_length"),
            arrival_s,
            first_s,
            last_s,
            _chunk_s(metrics, first_s),
            cached_tokens=_tokens(metrics, _CACHED) if _CACHED in metrics else None,
        )
    except RowError as error:
        raise error.inside(record.place) from None


def _chunk_s(metrics: Mapping[str, Any], first_s: float) -> tuple[float, ...]:
    name = "inter_chunk_latency"
    if name not in metrics:
        return ()
    stamps_s = [first_s]
    for gap in numbers(name, within(metrics, name, "value")):
        stamps_s.append(stamps_s[-1] + gap * _unit_s(metrics, name))
    return tuple(stamps_s)


def _seconds(metrics: Mapping[str, Any], name: str) -> float:
    return number(name, within(metrics, name, "value")) * _unit_s(metrics, name)


def _unit_s(metrics: Mapping[str, Any], name: str) -> float:
    unit = within(metrics, name, "unit")
    found = {"sec": 1.0, "seconds": 1.0, **UNITS_S}.get(str(unit))
    if found is None:
        raise RowError(f"{name}.unit", "must be ns, us, ms or s", unit)
    return found


def _tokens(metrics: Mapping[str, Any], name: str) -> int:
    return count(name, within(metrics, name, "value"))
