"""The figures of one side under both loads, and where they come from in a simulation and a test."""

from collections.abc import Mapping, Sequence

from servetwin.policies.step_record import StepRecord
from servetwin.sim.records.metrics import figure
from servetwin.sim.records.run import Run

METRICS: Mapping[str, str] = {
    "ttft_alone": "TTFT, alone",
    "tpot_alone": "TPOT, alone",
    "ttft_saturated": "TTFT, saturated",
    "tpot_saturated": "TPOT, saturated",
    "throughput": "throughput",
    "memory": "memory",
}
"""What is compared, and its name in tables.

Alone: medians, since one pause of the machine moves the mean of few requests. Saturated: means.
``memory``: weights, and the most keys and values that the saturated requests hold."""

Figures = Mapping[str, float]


def figures_of(alone: Run, saturated: Run, memory_bytes: float) -> Figures:
    """Return the figures of ``METRICS`` that are defined."""
    one, many = alone.summary(), saturated.summary()
    found = {
        "ttft_alone": figure(one, "ttft_s.p50"),
        "tpot_alone": figure(one, "tpot_s.p50"),
        "ttft_saturated": figure(many, "ttft_s.mean"),
        "tpot_saturated": figure(many, "tpot_s.mean"),
        "throughput": figure(many, "output_throughput_tokens_per_s"),
        "memory": memory_bytes,
    }
    return {name: value for name, value in found.items() if value}


def ratios(without: Figures, with_it: Figures) -> dict[str, float]:
    """Return with / without of every figure that both sides have."""
    both = without.keys() & with_it.keys()
    return {name: with_it[name] / without[name] for name in METRICS if name in both}


def most_held_tokens(steps: Sequence[StepRecord], kv_tokens: int) -> int:
    """Return the most KV tokens that were held in any of the steps of a log."""
    return kv_tokens - min((step.free_tokens for step in steps), default=kv_tokens)
