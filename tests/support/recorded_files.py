"""Files of load testers and servers: the same three requests, and one that failed."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from servetwin.workloads.readers.native import SCHEMA


class Known(NamedTuple):
    arrival_s: float
    prompt: int
    output: int
    ttft_s: float
    gaps_s: tuple[float, ...]

    @property
    def e2e_s(self) -> float:
        return self.ttft_s + sum(self.gaps_s)


REQUESTS = (
    Known(0.0, 100, 4, 0.25, (0.125, 0.125, 0.25)),
    Known(0.5, 200, 3, 0.5, (0.25, 0.25)),
    Known(1.25, 50, 2, 0.125, (0.0625,)),
)
FAILED = Known(2.0, 70, 0, 0.0, ())
EPOCH_S = 1_700_000_000.0


def vllm_bench(**changes: Any) -> str:
    every = (*REQUESTS, FAILED)
    result: dict[str, Any] = {
        "backend": "vllm", "request_rate": 2.0, "max_concurrency": None,
        "input_lens": [one.prompt for one in every],
        "output_lens": [one.output for one in every],
        "ttfts": [one.ttft_s for one in every],
        "itls": [list(one.gaps_s) for one in every],
        "start_times": [5000.0 + one.arrival_s for one in every],
        "errors": ["", "", "", "Internal Server Error"],
    }  # fmt: skip
    kept = {name: value for name, value in (result | changes).items() if value is not ...}
    return json.dumps(kept)


def aiperf() -> str:
    records = [_aiperf(number, one) for number, one in enumerate(REQUESTS)]
    failed = _aiperf(3, FAILED)
    failed["metrics"] = {"error_isl": {"value": FAILED.prompt, "unit": "tokens"}}
    failed["error"] = {"code": 499, "type": "RequestCancellationError", "message": "gone"}
    warm_up = _aiperf(9, REQUESTS[0])
    warm_up["metadata"]["benchmark_phase"] = "warmup"
    return "\n".join(map(json.dumps, [warm_up, *records, failed]))


def _aiperf(number: int, one: Known) -> dict[str, Any]:
    metrics = {
        "time_to_first_token": (1e3 * one.ttft_s, "ms"),
        "request_latency": (1e3 * one.e2e_s, "ms"),
        "inter_chunk_latency": ([1e3 * gap for gap in one.gaps_s], "ms"),
        "input_sequence_length": (one.prompt, "tokens"),
        "output_sequence_length": (one.output, "tokens"),
        "usage_prompt_cache_read_tokens": (number, "tokens"),
    }
    return {
        "metadata": {
            "x_request_id": f"id-{number}",
            "request_start_ns": round((EPOCH_S + one.arrival_s) * 1e9),
            "benchmark_phase": "profiling",
        },
        "metrics": {name: {"value": v, "unit": unit} for name, (v, unit) in metrics.items()},
        "error": None,
    }


def guidellm() -> str:
    def request(one: Known) -> dict[str, Any]:
        first_s = EPOCH_S + one.arrival_s + one.ttft_s
        return {
            "request_id": f"at-{one.arrival_s}",
            "prompt_tokens": one.prompt,
            "output_tokens": one.output,
            "info": {
                "timings": {
                    "request_start": EPOCH_S + one.arrival_s,
                    "first_token_iteration": first_s,
                    "last_token_iteration": first_s + sum(one.gaps_s),
                }
            },
        }

    groups = {"successful": [*map(request, REQUESTS)], "errored": [request(FAILED)]}
    return json.dumps({"metadata": {}, "benchmarks": [{"requests": groups}]}, indent=1)


def inference_perf(nested: bool = False) -> str:
    return json.dumps([*(_inference_perf(one, nested) for one in REQUESTS), _failed_perf()])


def _inference_perf(one: Known, nested: bool) -> dict[str, Any]:
    stamps = [100.0 + one.arrival_s + one.ttft_s]
    for gap in one.gaps_s:
        stamps.append(stamps[-1] + gap)
    answer = {"output_tokens": one.output, "output_token_times": stamps}
    info: Mapping[str, Any] = {"input_tokens": one.prompt, **answer}
    if nested:
        asked = {"text": {"input_tokens": one.prompt}}
        info = {"request_metrics": asked, "response_metrics": answer}
    start_s = 100.0 + one.arrival_s
    return {"start_time": start_s, "end_time": stamps[-1], "info": info, "error": None}


def _failed_perf() -> dict[str, Any]:
    start_s = 100.0 + FAILED.arrival_s
    error = {"error_type": "ClientError", "error_msg": "no"}
    info = {"input_tokens": FAILED.prompt}
    return {"start_time": start_s, "end_time": start_s, "info": info, "error": error}


def tunnel() -> str:
    """Return a trace of ``servetwin record``, with its header."""
    rows = [
        {
            "request_id": f"r{number}", "arrival_s": one.arrival_s, "status": "ok",
            "first_token_s": one.arrival_s + one.ttft_s, "last_token_s": one.arrival_s + one.e2e_s,
            "prompt_tokens": one.prompt, "output_tokens": one.output,
        }
        for number, one in enumerate(REQUESTS)
    ]  # fmt: skip
    return "\n".join(map(json.dumps, [{"schema": SCHEMA, "source": "recorded"}, *rows]))


def engine_stamps(theirs: bool = False) -> str:
    names = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts", "num_prompt_tokens",
             "num_generation_tokens") if theirs else (
        "arrival_s", "scheduled_s", "first_token_s", "last_token_s", "prompt_tokens",
        "output_tokens")  # fmt: skip
    lines = [
        dict(
            zip(
                names,
                (
                    one.arrival_s,
                    one.arrival_s + 0.0625,
                    one.arrival_s + one.ttft_s,
                    one.arrival_s + one.e2e_s,
                    one.prompt,
                    one.output,
                ),
                strict=True,
            )
        )
        for one in REQUESTS
    ]
    return "\n".join(map(json.dumps, lines))


def otel_spans() -> str:
    def attribute(name: str, value: Any) -> dict[str, Any]:
        kind = "intValue" if isinstance(value, int) else "doubleValue"
        return {"key": name, "value": {kind: str(value) if kind == "intValue" else value}}

    spans: list[dict[str, Any]] = [
        {
            "spanId": f"s{number}",
            "startTimeUnixNano": str(round((EPOCH_S + one.arrival_s) * 1e9)),
            "endTimeUnixNano": str(round((EPOCH_S + one.arrival_s + one.e2e_s) * 1e9)),
            "attributes": [
                attribute("gen_ai.usage.prompt_tokens", one.prompt),
                attribute("gen_ai.usage.completion_tokens", one.output),
                attribute("gen_ai.latency.time_to_first_token", one.ttft_s),
                attribute("gen_ai.latency.e2e", one.e2e_s),
            ],
        }
        for number, one in enumerate(REQUESTS)
    ]
    at_ns = str(round((EPOCH_S + FAILED.arrival_s) * 1e9))
    failed = {"spanId": "f", "startTimeUnixNano": at_ns, "endTimeUnixNano": at_ns,
              "status": {"code": 2, "message": "gone"},
              "attributes": [attribute("gen_ai.usage.prompt_tokens", FAILED.prompt)]}  # fmt: skip
    other = {"spanId": "http", "startTimeUnixNano": at_ns, "attributes": []}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [*spans, failed, other]}]}]})


def csv() -> str:
    rows = [
        f"2026-11-22T10:00:{one.arrival_s:09.6f}Z,{one.prompt},{one.output},{1e3 * one.ttft_s},"
        f"{1e6 * one.e2e_s}"
        for one in REQUESTS
    ]
    return "\n".join(["ts,in,out,ttft ms,latency us", *rows])


CSV_MAP = "arrival_s=ts,prompt_tokens=in,output_tokens=out,ttft_ms=ttft ms,e2e_us=latency us"


def bench_requests() -> str:
    """Return what LLMServingSim's bench writes: two clocks; all but the first wait 0.1 s."""
    return "\n".join(
        json.dumps(
            {
                "request_id": f"bench-{number}",
                "input_toks": one.prompt,
                "output_toks": one.output,
                "arrival_time": EPOCH_S + one.arrival_s,
                "queued_ts": 50.0 + one.arrival_s + (0.1 if number else 0.0),
                "scheduled_ts": 50.0 + one.arrival_s + (0.1 if number else 0.0),
                "first_token_ts": 50.0 + one.arrival_s + one.ttft_s,
                "last_token_ts": 50.0 + one.arrival_s + one.e2e_s,
            }
        )
        for number, one in enumerate(REQUESTS)
    )
