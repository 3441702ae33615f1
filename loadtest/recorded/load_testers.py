"""Results of load testers: AIPerf, vLLM's and SGLang's bench_serving, GuideLLM, inference-perf.

AIPerf's ``profile_export.jsonl`` has an object with metadata and metrics per request; every metric
is a value and its unit, stamps of metadata are nanoseconds since 1970.

``vllm bench serve --save-result --save-detailed`` and SGLang's bench_serving write one JSON object
with a list per quantity: ``input_lens``, ``output_lens``, ``ttfts`` and ``itls`` in seconds,
``errors``, and in newer versions ``start_times``. SGLang appends a line for each run
(``--output-details``).

GuideLLM's JSON report has benchmarks with the requests of each, stamps in seconds.

inference-perf's ``per_request_lifecycle_metrics.json`` is an array of requests, its stamps seconds
of one clock. Token counts stand in ``info``, in newer versions in its ``request_metrics`` and
``response_metrics``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.loadtest.recorded.fields import (
    UNITS_S,
    count,
    fields_of,
    items_of,
    moment_s,
    number,
    numbers,
    objects_of,
    within,
)
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.workloads.rows import RowError

_CACHED = "usage_prompt_cache_read_tokens"
"""Prompt tokens that the server found in its prefix cache, where its usage says so."""


def is_aiperf(record: Mapping[str, Any]) -> bool:
    """Return whether a record has metadata with the start of a request, and metrics."""
    return within(record, "metadata", "request_start_ns") is not None and "metrics" in record


def read_aiperf(records: Sequence[Record]) -> Recording:
    """Read the requests of the profiling phase."""
    requests, warm_ups = [], 0
    for record in records:
        if within(record.fields, "metadata", "benchmark_phase") in (None, "profiling"):
            requests.append(_aiperf_request(record))
        else:
            warm_ups += 1
    notes = (f"{warm_ups} requests of the warm-up left out",) if warm_ups else ()
    return Recording("AIPerf", requests, notes)


def _aiperf_request(record: Record) -> RecordedRequest:
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
        first_s = arrival_s + _metric_s(metrics, "time_to_first_token")
        last_s = arrival_s + _metric_s(metrics, "request_latency")
        return RecordedRequest(
            name,
            _metric_tokens(metrics, "input_sequence_length"),
            _metric_tokens(metrics, "output_sequence_length"),
            arrival_s,
            first_s,
            last_s,
            _aiperf_chunk_s(metrics, first_s),
            cached_tokens=_metric_tokens(metrics, _CACHED) if _CACHED in metrics else None,
        )
    except RowError as error:
        raise error.inside(record.place) from None


def _aiperf_chunk_s(metrics: Mapping[str, Any], first_s: float) -> tuple[float, ...]:
    name = "inter_chunk_latency"
    if name not in metrics:
        return ()
    stamps_s = [first_s]
    for gap in numbers(name, within(metrics, name, "value")):
        stamps_s.append(stamps_s[-1] + gap * _unit_s(metrics, name))
    return tuple(stamps_s)


def _metric_s(metrics: Mapping[str, Any], name: str) -> float:
    return number(name, within(metrics, name, "value")) * _unit_s(metrics, name)


def _unit_s(metrics: Mapping[str, Any], name: str) -> float:
    unit = within(metrics, name, "unit")
    found = {"sec": 1.0, "seconds": 1.0, **UNITS_S}.get(str(unit))
    if found is None:
        raise RowError(f"{name}.unit", "must be ns, us, ms or s", unit)
    return found


def _metric_tokens(metrics: Mapping[str, Any], name: str) -> int:
    return count(name, within(metrics, name, "value"))


_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_NO_ARRIVALS = (
    "'start_times' is missing and the request rate was not infinite; newer versions of the tool "
    "write it with --save-detailed"
)


def is_bench_serving(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the lists of lengths and first tokens."""
    return {"input_lens", "ttfts"} <= record.keys()


def read_bench_serving(records: Sequence[Record]) -> Recording:
    """Read all requests of one result."""
    if len(records) > 1:
        raise RowError(
            records[1].place, f"a second result; keep one of the {len(records)} lines", None
        )
    result = records[0].fields
    lists = {name: _list(result, name) for name in _LISTS}
    size = len(lists["input_lens"])
    errors = items_of("errors", result.get("errors")) or [""] * size
    starts = items_of("start_times", result.get("start_times"))
    notes: tuple[str, ...] = ()
    at_once = result.get("request_rate") in ("inf", float("inf"))
    if not starts and at_once and not result.get("max_concurrency"):
        starts = [0.0] * size
        notes = ("all requests were sent at once (request_rate inf)",)
    starts = starts or [None] * size
    for name, values in (*lists.items(), ("errors", errors), ("start_times", starts)):
        if len(values) != size:
            raise RowError(name, f"{len(values)} entries, but input_lens has {size}", None)
    requests = [
        _bench_request(at, starts[at], errors[at], *(lists[name][at] for name in _LISTS))
        for at in range(size)
    ]
    return Recording(_tool(result), requests, notes, _NO_ARRIVALS)


def _bench_request(
    at: int, start: Any, error: Any, input_len: Any, output_len: Any, ttft: Any, itl: Any
) -> RecordedRequest:
    prompt_tokens = count(f"input_lens[{at}]", input_len)
    arrival_s = moment_s(f"start_times[{at}]", start)
    if error:
        return RecordedRequest(str(at), prompt_tokens, 0, arrival_s, error=str(error))
    sent_s = arrival_s or 0.0
    first_s = sent_s + number(f"ttfts[{at}]", ttft)
    chunk_s = [first_s]
    for gap_s in numbers(f"itls[{at}]", itl):
        chunk_s.append(chunk_s[-1] + gap_s)
    return RecordedRequest(
        str(at),
        prompt_tokens,
        count(f"output_lens[{at}]", output_len),
        arrival_s,
        first_s,
        chunk_s[-1],
        tuple(chunk_s),
    )


def _list(result: Mapping[str, Any], name: str) -> list[Any]:
    found = result.get(name)
    if not isinstance(found, list):
        raise RowError(name, "missing: the result has no details of requests", found)
    return found


def _tool(result: Mapping[str, Any]) -> str:
    backend = str(result.get("backend", result.get("endpoint_type", "")))
    return "SGLang bench_serving" if backend.startswith("sglang") else "vllm bench serve"


def is_guidellm(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a report with the requests of its benchmarks."""
    benchmarks = record.get("benchmarks")
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return within({"first": first}, "first", "requests") is not None


def read_guidellm(records: Sequence[Record]) -> Recording:
    """Read the requests of the one benchmark of a report."""
    benchmarks = records[0].fields["benchmarks"]
    if len(benchmarks) > 1:
        raise RowError(
            "benchmarks", f"{len(benchmarks)} of them; run GuideLLM with one rate per report", None
        )
    groups = fields_of("benchmarks[0].requests", benchmarks[0]["requests"])
    requests = [
        _guidellm_request(f"benchmarks[0].requests.{kind}[{at}]", fields, kind)
        for kind in ("successful", "incomplete", "errored")
        for at, fields in enumerate(objects_of(kind, groups.get(kind)))
    ]
    return Recording("GuideLLM", requests, ("no stamps of single tokens",))


def _guidellm_request(place: str, fields: Mapping[str, Any], kind: str) -> RecordedRequest:
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


def is_inference_perf(record: Mapping[str, Any]) -> bool:
    """Return whether a record has start and end of a request, and what is known of it."""
    return {"start_time", "end_time", "info"} <= record.keys()


def read_inference_perf(records: Sequence[Record]) -> Recording:
    """Read a request of each record."""
    return Recording("inference-perf", [_inference_perf_request(record) for record in records])


def _inference_perf_request(record: Record) -> RecordedRequest:
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
