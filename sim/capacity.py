"""How many requests per second a server can sustain on a trace's mix of lengths."""

from dataclasses import replace

from policies.config import PolicyConfig
from sim.metrics import figure
from sim.predict import predict_once
from sim.server_model import ServerModel
from workloads.errors import TraceError
from workloads.trace import Trace


def saturation_rate_per_s(trace: Trace, config: PolicyConfig, profile: ServerModel) -> float:
    """Completed requests per second when the server is never out of work.

    All requests come at once; the first and last tenth of the completions are left out, where
    batches fill up and drain. Raises ``TraceError`` when fewer than ten requests finish.
    """
    at_once = trace.replaced([replace(r, arrival_s=0.0) for r in trace], "all at once")
    run = predict_once(at_once, replace(config, queue_limit=None), profile)
    ends_s = run.requests["last_token_s"].dropna().sort_values().to_numpy()
    if len(ends_s) < 10:
        raise TraceError(f"{trace.source}: {len(ends_s)} requests are too few to find a capacity")
    low, high = len(ends_s) // 10, len(ends_s) - 1 - len(ends_s) // 10
    span_s = float(ends_s[high] - ends_s[low])
    makespan_s = figure(run.summary(), "makespan_s")
    assert makespan_s is not None
    return (high - low) / span_s if span_s > 0 else len(ends_s) / makespan_s
