"""What cannot be wanted of answers that come whole: a first token, or tokens at all."""

from dataclasses import replace

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.options import LoadOptions
from servetwin.sim.records.metrics import SLO
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace


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
        trace,
        requests=tuple(replace(r, output_tokens=max(1, r.output_tokens)) for r in trace),
    )
