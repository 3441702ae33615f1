"""The ``per_request_lifecycle_metrics.json`` of inference-perf: an array of requests.

Stamps are seconds of one clock. Token counts stand in ``info``, in newer versions in its
``request_metrics`` and ``response_metrics``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.loadtest.recorded.fields import count, fields_of, moment_s, numbers, within
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.workloads.rows import RowError


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record has start and end of a request, and what is known of it."""
    return {"start_time", "end_time", "info"} <= record.keys()


def read(records: Sequence[Record]) -> Recording:
    """Read a request of each record."""
    return Recording("inference-perf", [_request(record) for record in records])


def _request(record: Record) -> RecordedRequest:
    fields = record.fields
    try:
        info = fields_of("info", fields.get("info"))
        answer = fields_of("info.response_metrics", info.get("response_metrics")) or info
        arrival_s = moment_s("start_time", fields.get("start_time"))
        asked = within(info, "request_metrics", "text", "input_tokens")
        prompt_tokens = count("info.input_tokens", info.get("input_tokens", asked) or 0)
        if error := fields.get("error"):
            reason = str(within(error, "error_type") or error)
            return RecordedRequest(record.place, prompt_tokens, 0, arrival_s, error=reason)
        chunk_s = numbers("info.output_token_times", answer.get("output_token_times") or [])
        return RecordedRequest(
            record.place,
            prompt_tokens,
            count("info.output_tokens", answer.get("output_tokens")),
            arrival_s,
            chunk_s[0] if chunk_s else None,
            chunk_s[-1] if chunk_s else moment_s("end_time", fields.get("end_time")),
            chunk_s,
        )
    except RowError as error:
        raise error.inside(record.place) from None
