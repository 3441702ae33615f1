"""Prometheus metrics, under vLLM's names and buckets, so that existing dashboards read them."""

from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from servetwin.engine.core.messages import CoreStats, TokenEvent
from servetwin.workloads.program.package import shipped_json

# By kind and name of ours: name, text and buckets of the metrics.
_METRICS: dict[str, Any] = shipped_json("engine/core/metrics.json")


@dataclass(slots=True)
class RequestTiming:
    """Stamps of one request on ``time.monotonic``, as the HTTP process saw them."""

    prompt_tokens: int
    arrived_s: float = field(default_factory=monotonic)
    last_token_s: float | None = None


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self, model_name: str) -> None:
        self._registry = CollectorRegistry()
        self._core = CoreStats()

        def families(made: Any, kind: str) -> dict[str, Any]:
            """Make the metrics of a kind, in the order of their names; they have the model's."""
            return {
                key: made(
                    f"vllm:{name}",
                    text,
                    ("model_name",),
                    registry=self._registry,
                    **({"buckets": buckets[0]} if buckets else {}),
                ).labels(model_name)
                for key, (name, text, *buckets) in _METRICS[kind].items()
            }

        self._gauges: dict[str, Gauge] = families(Gauge, "gauges")
        self._counters: dict[str, Counter] = families(Counter, "counters")
        self._totals = [name for name in self._counters if name in CoreStats._fields]
        self._histograms: dict[str, Histogram] = families(Histogram, "histograms")
        ended = Counter(
            "vllm:request_success",
            "Requests that ended, by reason.",
            ("model_name", "finished_reason"),
            registry=self._registry,
        )
        reasons = _METRICS["finished_reasons"]
        self._ended = {reason: ended.labels(model_name, reason) for reason in reasons}

    def token(self, timing: RequestTiming, event: TokenEvent, now_s: float) -> None:
        """Count a token of a request."""
        self._counters["generation_tokens"].inc()
        if timing.last_token_s is None:
            self._counters["prompt_tokens"].inc(timing.prompt_tokens)
            self._histograms["ttft"].observe(now_s - timing.arrived_s)
        else:
            self._histograms["itl"].observe(now_s - timing.last_token_s)
        timing.last_token_s = now_s
        if event.finish_reason:
            self._histograms["e2e"].observe(now_s - timing.arrived_s)
            self._ended[event.finish_reason].inc()

    def ended(self, reason: Literal["abort", "error"]) -> None:
        """Count a request that ended without its last token."""
        self._ended[reason].inc()

    def core_started(self) -> None:
        """Begin anew with a core that has no requests and whose totals are 0."""
        self._core = CoreStats()
        self.core(self._core)

    def core(self, stats: CoreStats) -> None:
        """Set the gauges from the state of the core, and count on its totals."""
        before, self._core = self._core, stats
        for name, gauge in self._gauges.items():
            gauge.set(getattr(stats, name))
        for name in self._totals:
            self._counters[name].inc(getattr(stats, name) - getattr(before, name))
        if stats.steps > before.steps:
            self._histograms["step_tokens"].observe(stats.step_tokens)

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)
