"""The JSON report of GuideLLM: benchmarks with the requests of each, stamps in seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.loadtest.recorded.fields import count, fields_of, moment_s, objects_of, within
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.workloads.rows import RowError


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a report with the requests of its benchmarks."""
    benchmarks = record.get("benchmarks")
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return within({"first": first}, "first", "requests") is not None


def read(records: Sequence[Record]) -> Recording:
    """Read the requests of the one benchmark of a report."""
    benchmarks = records[0].fields["benchmarks"]
    if len(benchmarks) > 1:
        raise RowError(
            "benchmarks", f"{len(benchmarks)} of them; run GuideLLM with one rate per report", None
        )
    groups = fields_of("benchmarks[0].requests", benchmarks[0]["requests"])
    requests = [
        _request(f"benchmarks[0].requests.{kind}[{at}]", fields, kind)
        for kind in ("successful", "incomplete", "errored")
        for at, fields in enumerate(objects_of(kind, groups.get(kind)))
    ]
    return Recording("GuideLLM", requests, ("no stamps of single tokens",))


def _request(place: str, fields: Mapping[str, Any], kind: str) -> RecordedRequest:
    try:
        timings = fields_of("info.timings", within(fields, "info", "timings"))
        first_s, last_s = (
            moment_s(name, timings.get(name))
            for name in ("first_token_iteration", "last_token_iteration")
        )
        start = timings.get("targeted_start")
        arrival_s = moment_s("request_start", timings.get("request_start", start))
        name = str(fields.get("request_id") or place)
        prompt_tokens = count("prompt_tokens", fields.get("prompt_tokens") or 0)
        if kind != "successful":
            return RecordedRequest(name, prompt_tokens, 0, arrival_s, error=kind)
        output_tokens = count("output_tokens", fields.get("output_tokens"))
        return RecordedRequest(name, prompt_tokens, output_tokens, arrival_s, first_s, last_s)
    except RowError as error:
        raise error.inside(place) from None
