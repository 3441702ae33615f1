"""Results of ``vllm bench serve --save-result --save-detailed`` and of SGLang's bench_serving.

One JSON object with a list per quantity: ``input_lens``, ``output_lens``, ``ttfts`` and ``itls`` in
seconds, ``errors``, and in newer versions ``start_times``. SGLang appends a line for each run
(``--output-details``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from servetwin.loadtest.recorded.fields import count, items_of, moment_s, number, numbers
from servetwin.loadtest.recorded.recording import Record, RecordedRequest, Recording
from servetwin.workloads.rows import RowError

_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_NO_ARRIVALS = (
    "'start_times' is missing and the request rate was not infinite; newer versions of the tool "
    "write it with --save-detailed"
)


def recognises(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the lists of lengths and first tokens."""
    return {"input_lens", "ttfts"} <= record.keys()


def read(records: Sequence[Record]) -> Recording:
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
        _request(at, starts[at], errors[at], *(lists[name][at] for name in _LISTS))
        for at in range(size)
    ]
    return Recording(_tool(result), requests, notes, _NO_ARRIVALS)


def _request(
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
