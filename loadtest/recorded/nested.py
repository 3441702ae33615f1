"""Files that are no list of requests: AIPerf, bench_serving, GuideLLM and OpenTelemetry spans.

``vllm bench serve --save-result --save-detailed`` and SGLang's bench_serving write one JSON object
with a list per quantity, in newer versions also ``start_times``. SGLang appends a line for each run
(``--output-details``). AIPerf's ``profile_export.jsonl`` also has the requests of the warm-up.
GuideLLM's report has benchmarks with the requests of each. Of the spans of an OTLP export, those
with token counts are requests; vLLM adds their latencies.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from servetwin.loadtest.recorded.fields import fields_of, items_of, number, objects_of, within
from servetwin.loadtest.recorded.recording import NO_ARRIVALS, Record
from servetwin.workloads.rows import RowError


class Rows(NamedTuple):
    """A record for each request of a file, and what the file as a whole says."""

    records: Sequence[Record]
    notes: tuple[str, ...] = ()
    tool: str = ""
    no_arrivals: str = NO_ARRIVALS


def aiperf_rows(records: Sequence[Record]) -> Rows:
    """Return the requests of the profiling phase."""
    phases = [within(record.fields, "metadata/benchmark_phase") for record in records]
    rows = [r for r, phase in zip(records, phases, strict=True) if phase in (None, "profiling")]
    warm_ups = len(records) - len(rows)
    return Rows(rows, (f"{warm_ups} requests of the warm-up left out",) if warm_ups else ())


_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_NO_STARTS = (
    "'start_times' is missing and the request rate was not infinite; newer versions of the tool "
    "write it with --save-detailed"
)


def bench_serving_rows(records: Sequence[Record]) -> Rows:
    """Return the requests of one result."""
    if len(records) > 1:
        raise RowError(
            records[1].place, f"a second result; keep one of the {len(records)} lines", None
        )
    result = records[0].fields
    columns = {name: _list(result, name) for name in _LISTS}
    size = len(columns["input_lens"])
    starts = items_of("start_times", result.get("start_times"))
    at_once = result.get("request_rate") in ("inf", float("inf"))
    at_once = at_once and not starts and not result.get("max_concurrency")
    columns["start_times"] = starts or [0.0 if at_once else None] * size
    columns["errors"] = items_of("errors", result.get("errors")) or [""] * size
    for name, values in columns.items():
        if len(values) != size:
            raise RowError(name, f"{len(values)} entries, but input_lens has {size}", None)
    rows = [
        Record(f"request {at}", {"request_id": at, **dict(zip(columns, values, strict=True))})
        for at, values in enumerate(zip(*columns.values(), strict=True))
    ]
    notes = ("all requests were sent at once (request_rate inf)",) if at_once else ()
    backend = str(result.get("backend", result.get("endpoint_type", "")))
    tool = "SGLang bench_serving" if backend.startswith("sglang") else ""
    return Rows(rows, notes, tool, _NO_STARTS)


def _list(result: Mapping[str, Any], name: str) -> list[Any]:
    values = result.get(name)
    if not isinstance(values, list):
        raise RowError(name, "missing: the result has no details of requests", values)
    return values


def guidellm_rows(records: Sequence[Record]) -> Rows:
    """Return the requests of the one benchmark of a report."""
    benchmarks = records[0].fields["benchmarks"]
    if len(benchmarks) > 1:
        raise RowError(
            "benchmarks", f"{len(benchmarks)} of them; run GuideLLM with one rate per report", None
        )
    place = "benchmarks[0].requests"
    groups = fields_of(place, benchmarks[0]["requests"])
    rows = [
        Record(f"{place}.{kind}[{at}]", {**fields, "error": error})
        for kind, error in (("successful", None), ("incomplete",) * 2, ("errored",) * 2)
        for at, fields in enumerate(objects_of(kind, groups.get(kind)))
    ]
    return Rows(rows)


def engine_rows(records: Sequence[Record]) -> Rows:
    """Return the requests with the arrivals that their clients saw, on the clock of the engine.

    An engine takes in what has arrived between two steps: ``queued_ts`` has the wait for the end of
    a step behind it. The request that was taken in the soonest aligns the clocks.
    """
    names = ("arrival_time", "queued_ts")
    if not all(record.fields.get(name) is not None for record in records for name in names):
        return Rows(records)
    delays_s = []
    for place, fields in records:
        try:
            arrived_s, queued_s = (number(name, fields[name]) for name in names)
        except RowError as error:
            raise error.inside(place) from None
        delays_s.append(queued_s - arrived_s)
    rows = [
        Record(place, {**fields, "arrival_s": fields["arrival_time"] + min(delays_s)})
        for place, fields in records
    ]
    return Rows(rows, ("arrivals of the clients, on the clock of the engine",))


_PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_VALUES = ("intValue", "doubleValue", "stringValue", "boolValue")
_FAILED = (2, "STATUS_CODE_ERROR")


def span_rows(records: Sequence[Record]) -> Rows:
    """Return the spans that have token counts, each with its attributes among its fields."""
    spans = [(record.place, span) for record in records for span in _spans(record.fields)]
    rows = [Record(place, _with_attributes(place, span)) for place, span in spans]
    return Rows([row for row in rows if any(name in row.fields for name in _PROMPT)])


def _spans(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" not in fields:
        yield fields
    for resource in objects_of("resourceSpans", fields.get("resourceSpans")):
        for scope in objects_of("scopeSpans", resource.get("scopeSpans")):
            yield from objects_of("spans", scope.get("spans"))


def _with_attributes(place: str, span: Mapping[str, Any]) -> dict[str, Any]:
    attributes = objects_of("attributes", span.get("attributes"))
    values = {str(one.get("key")): _value(one.get("value")) for one in attributes}
    status = fields_of(f"{place}.status", span.get("status"))
    has_failed = status.get("code") in _FAILED or not any(name in values for name in _OUTPUT)
    reason = status.get("message") or "no output tokens"
    return {**span, **values, "error": reason if has_failed else None}


def _value(value: Any) -> Any:
    kinds = fields_of("value", value)
    return next((kinds[kind] for kind in _VALUES if kind in kinds), None)
