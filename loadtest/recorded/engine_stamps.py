"""Stamps that vLLM keeps of each request (``RequestStateStats``), one JSON object per request.

Written from inside the engine, so no HTTP latency is in them. Field names are ours (``arrival_s``,
``scheduled_s``, ``first_token_s``, ``last_token_s``, ``prompt_tokens``, ``output_tokens``) or
vLLM's (``queued_ts``, ``scheduled_ts``, ``first_token_ts``, ``last_token_ts``,
``num_prompt_tokens``, ``num_generation_tokens``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.loadtest.recorded.fields import count, moment_s
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.sim.records.run import Run
from servetwin.workloads.fields import integer, integer_list

TOOL = "stamps of the engine"
_NAMES = {
    "arrival": ("arrival_s", "queued_ts"),
    "scheduled": ("scheduled_s", "scheduled_ts"),
    "first": ("first_token_s", "first_token_ts"),
    "last": ("last_token_s", "last_token_ts"),
    "prompt": ("prompt_tokens", "num_prompt_tokens"),
    "output": ("output_tokens", "num_generation_tokens"),
}


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the stamp of a first token under one of both names."""
    return bool({"first_token_s", "first_token_ts"} & record.keys())


def stamped(run: Run) -> bool:
    """Return whether the stamps of a run are inside the engine, without any HTTP."""
    return run.scenario.get("recorded_by") == TOOL


def read(records: Sequence[Record]) -> Recording:
    """Read a request of each record."""
    return Recording(
        TOOL,
        [_request(number, record.fields) for number, record in enumerate(records)],
        ("stamps inside the engine: no HTTP latency", "no stamps of single tokens"),
    )


def _request(number: int, record: Mapping[str, Any]) -> RecordedRequest:
    def stamp(what: str) -> float | None:
        name = _name(record, what)
        return moment_s(name, record.get(name))

    arrival_s, scheduled_s = stamp("arrival"), stamp("scheduled")
    queued = scheduled_s is not None and arrival_s is not None
    ids = record.get("prefix_block_ids") or []
    return RecordedRequest(
        str(record.get("request_id", number)),
        count(_name(record, "prompt"), record.get(_name(record, "prompt"))),
        count(_name(record, "output"), record.get(_name(record, "output"))),
        arrival_s,
        stamp("first"),
        stamp("last"),
        queue_s=(scheduled_s or 0.0) - (arrival_s or 0.0) if queued else None,
        prefix_block_ids=integer_list("prefix_block_ids", ids),
        block_tokens=integer(1)("block_tokens", record.get("block_tokens")) if ids else None,
        error=str(record["error"]) if record.get("error") else None,
    )


def _name(record: Mapping[str, Any], what: str) -> str:
    ours, theirs = _NAMES[what]
    return theirs if theirs in record else ours
