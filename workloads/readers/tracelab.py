"""TraceLab coding sessions (UW SyFI): JSON Lines, one round of an agent with a model each."""

from typing import Any, NamedTuple

from servetwin.workloads import fields as check
from servetwin.workloads.request import Request
from servetwin.workloads.rows import RowError, Rows
from servetwin.workloads.trace import Trace

_FORMAT = check.RecordFormat.of("tracelab")
recognises = _FORMAT.recognises
_INPUTS = ("user_message", "tool_result")


class _Round(NamedTuple):
    line: int
    fields: dict[str, Any]
    sent_ns: int
    ended_ns: int
    previous: "_Round | None"


def read(rows: Rows) -> Trace:
    """Read the requests in file order; the earliest arrives at 0.

    A round is sent at the last of the inputs that open it, and follows the one before it in its
    session, ``delay_s`` after that one's last event. The provider's cache counters are left out:
    they say what one cache held, not what the prompts share.
    """
    latest: dict[str, _Round] = {}

    def parse(line: int, text: str) -> _Round:
        record = check.json_object(text)
        fields = _FORMAT.checked(record)
        check.check_reasoning(fields, "reasoning_output_tokens")
        sent_ns, ended_ns = _span_ns(record["timing_events"])
        previous = latest.get(fields["session_id"])
        if previous and fields["round_index"] <= previous.fields["round_index"]:
            reason = "must rise within its session"
            raise RowError("round_index", reason, fields["round_index"])
        entry = latest[fields["session_id"]] = _Round(line, fields, sent_ns, ended_ns, previous)
        return entry

    rounds = rows.parse(parse)
    origin_ns = min((entry.sent_ns for entry in rounds), default=0)
    requests = tuple(_request(rows.source, entry, origin_ns) for entry in rounds)
    return Trace(requests, rows.source)


def _span_ns(events: Any) -> tuple[int, int]:
    """Return the times of the last opening input and of the last event, in ns."""
    if not isinstance(events, list) or not events or not all(isinstance(e, dict) for e in events):
        raise RowError("timing_events", "not a list of events", events)
    stamps_ns = [
        check.stamp_ns(f"timing_events[{index}].timestamp", event.get("timestamp"))
        for index, event in enumerate(events)
    ]
    inputs = 1
    while inputs < len(events) and events[inputs].get("event_type") in _INPUTS:
        inputs += 1
    return max(stamps_ns[:inputs]), max(stamps_ns)


def _request(source: str, entry: _Round, origin_ns: int) -> Request:
    fields, previous = entry.fields, entry.previous
    return Request(
        request_id=_request_id(source, entry),
        arrival_s=(entry.sent_ns - origin_ns) / 1e9,
        prompt_tokens=fields["input_tokens_total"],
        output_tokens=fields["output_tokens"],
        session_id=fields["session_id"],
        parent_ids=(_request_id(source, previous),) if previous else (),
        turn=fields["round_index"],
        delay_s=max(0, entry.sent_ns - previous.ended_ns) / 1e9 if previous else None,
        reasoning_tokens=fields.get("reasoning_output_tokens"),
        model=fields.get("model"),
        kind=fields.get("first_input_event_type"),
        tenant=fields.get("project"),
        status="ok" if fields["output_tokens"] else "failed",
        source_line=entry.line,
    )


def _request_id(source: str, entry: _Round) -> str:
    return f"{source}:{entry.line}"
