"""What an endpoint cannot answer: requests beyond its context, and stamps of whole answers."""

from dataclasses import replace
from typing import Literal

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.request import Request
from servetwin.workloads.rows import counted
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import clip_context

OnTooLong = Literal["drop", "clip"]


def oversized(trace: Trace, endpoint: Endpoint) -> int:
    """Count the requests that are longer than the context that the endpoint reports."""
    if endpoint.max_model_len is None:
        return 0
    return sum(request.total_tokens > endpoint.max_model_len for request in trace)


def within_context(trace: Trace, endpoint: Endpoint, on_too_long: OnTooLong | None) -> Trace:
    """Return the trace without requests longer than the context that the endpoint reports.

    ``drop`` leaves such requests out. ``clip`` cuts the end of the prompt, and of the output where
    that is longer than half of the context and does not fit beside the prompt. Raises
    ``LoadTestError`` where there are such requests and ``on_too_long`` is None.
    """
    limit, too_long = endpoint.max_model_len, oversized(trace, endpoint)
    if limit is None or not too_long:
        return trace
    if on_too_long == "drop":
        return clip_context(trace, limit)
    if on_too_long == "clip":
        if any(request.prompt is not None for request in trace):
            raise LoadTestError(
                "--on-too-long clip: real prompts are not cut; drop leaves them out"
            )
        note = f"{counted(too_long, 'request')} shortened to {limit:,} tokens"
        return trace.replaced([_clipped(request, limit) for request in trace], note)
    longest = max(request.total_tokens for request in trace)
    raise LoadTestError(
        f"{too_long:,} of {len(trace):,} requests are longer than the server's context of "
        f"{limit:,} tokens (the longest has {longest:,}); --on-too-long drop leaves them out, "
        "--on-too-long clip shortens them"
    )


def _clipped(request: Request, limit: int) -> Request:
    if request.total_tokens <= limit:
        return request
    room = max(limit - request.prompt_tokens, limit // 2, 1)
    output_tokens = min(request.output_tokens, room)
    prompt_tokens = max(1, min(request.prompt_tokens, limit - output_tokens))
    blocks = -(-prompt_tokens // request.block_tokens) if request.block_tokens else 0
    shared = request.shared_prefix_tokens
    return replace(
        request,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        prefix_block_ids=request.prefix_block_ids[:blocks],
        answer_block_ids=(),
        shared_prefix_tokens=None if shared is None else min(shared, prompt_tokens),
    )


def check_times(endpoint: Endpoint, load: LoadOptions, slo: SLO | None, *, predicted: bool) -> None:
    """Raise ``LoadTestError`` for options that need tokens one by one, where none come so."""
    embeddings = endpoint.api == "embeddings"
    if not (embeddings or endpoint.options.whole):
        return
    reason = "--api embeddings" if embeddings else "--no-stream"
    if slo and (slo.ttft_s is not None or slo.tpot_s is not None):
        raise LoadTestError(f"--slo and {reason}: TTFT and TPOT are undefined; limit e2e alone")
    if load.cancellation and load.cancellation.hang_up.after_tokens is not None:
        raise LoadTestError(f"--cancel and {reason}: no tokens to count; write after=200ms, say")
    if embeddings and predicted:
        raise LoadTestError("--against and --api embeddings: predictions are of generated tokens")


def without_outputs(trace: Trace) -> Trace:
    """Return the trace for an API of embeddings: its requests want no tokens."""
    requests = [replace(request, output_tokens=0, answer=None) for request in trace]
    return trace.replaced(requests, "embeddings: requests without tokens out")


def with_an_output(trace: Trace) -> Trace:
    """Return the trace as files have it: with a token out at least, as of a prefill alone."""
    return replace(
        trace, requests=tuple(replace(r, output_tokens=max(1, r.output_tokens)) for r in trace)
    )
