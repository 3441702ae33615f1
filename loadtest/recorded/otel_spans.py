"""OpenTelemetry spans of generative AI (OTLP JSON): those with token counts are requests.

vLLM adds ``gen_ai.latency.time_to_first_token``, ``e2e`` and ``time_in_queue`` in seconds; without
the first the first token is not known.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servetwin.loadtest.recorded.fields import count, fields_of, number, objects_of, optional
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.workloads.rows import RowError

_PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_FIRST = "gen_ai.latency.time_to_first_token"
_E2E = "gen_ai.latency.e2e"
_QUEUE = "gen_ai.latency.time_in_queue"
_VALUES = ("intValue", "doubleValue", "stringValue", "boolValue")
_FAILED = 2
"""The status code of a span that failed."""


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an export of spans, or a span."""
    return "resourceSpans" in record or {"spanId", "startTimeUnixNano"} <= record.keys()


def read(records: Sequence[Record]) -> Recording:
    """Read a request of every span that has token counts."""
    spans = [(r.place, span) for r in records for span in _spans(r.fields)]
    requests = [found for place, span in spans if (found := _request(place, span)) is not None]
    return Recording("OpenTelemetry spans", requests, ("no stamps of single tokens",))


def _spans(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" not in fields:
        yield fields
    for resource in objects_of("resourceSpans", fields.get("resourceSpans")):
        for scope in objects_of("scopeSpans", resource.get("scopeSpans")):
            yield from objects_of("spans", scope.get("spans"))


def _request(place: str, span: Mapping[str, Any]) -> RecordedRequest | None:
    attributes = objects_of("attributes", span.get("attributes"))
    said = {str(one.get("key")): _value(one.get("value")) for one in attributes}
    prompt, output = (
        next((name for name in names if name in said), None) for names in (_PROMPT, _OUTPUT)
    )
    if prompt is None:
        return None
    try:
        arrival_s, end_s = (
            number(name, span.get(name)) / 1e9 for name in ("startTimeUnixNano", "endTimeUnixNano")
        )
        name = str(said.get("gen_ai.request.id") or span.get("spanId") or place)
        prompt_tokens = count(prompt, said[prompt])
        status = fields_of("status", span.get("status"))
        if status.get("code") in (_FAILED, "STATUS_CODE_ERROR") or output is None:
            reason = str(status.get("message") or "no output tokens")
            return RecordedRequest(name, prompt_tokens, 0, arrival_s, error=reason)
        ttft_s = optional(_FIRST, said.get(_FIRST))
        e2e_s = optional(_E2E, said.get(_E2E))
        return RecordedRequest(
            name,
            prompt_tokens,
            count(output, said[output]),
            arrival_s,
            None if ttft_s is None else arrival_s + ttft_s,
            end_s if e2e_s is None else arrival_s + e2e_s,
            queue_s=optional(_QUEUE, said.get(_QUEUE)),
        )
    except RowError as error:
        raise error.inside(place) from None


def _value(value: Any) -> Any:
    said = fields_of("value", value)
    return next((said[kind] for kind in _VALUES if kind in said), None)
