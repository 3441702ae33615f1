"""Prometheus metrics, under vLLM's names and buckets, so that existing dashboards read them."""

from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from servetwin.engine.core.messages import CoreStats, TokenEvent

_TTFT_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
    80, 160, 640, 2560,
)  # fmt: skip
_ITL_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
_E2E_S = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

MetricT = TypeVar("MetricT", Counter, Gauge, Histogram)

FINISHED_REASONS = ("stop", "length", "abort", "error")


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

        def made(kind: type[MetricT], name: str, text: str, *buckets: float) -> MetricT:
            options: dict[str, Any] = {"registry": self._registry}
            if buckets:
                options["buckets"] = buckets
            return kind(f"vllm:{name}", text, ("model_name",), **options).labels(model_name)

        self._running = made(Gauge, "num_requests_running", "Sequences in the running batch.")
        self._waiting = made(Gauge, "num_requests_waiting", "Sequences that wait for admission.")
        self._kv_usage = made(Gauge, "kv_cache_usage_perc", "KV memory in use; 1 is all of it.")
        self._prompt_tokens = made(Counter, "prompt_tokens", "Prompt tokens processed.")
        self._generation_tokens = made(Counter, "generation_tokens", "Tokens generated.")
        self._preemptions = made(Counter, "num_preemptions", "Preemptions.")
        self._prefix_queries = made(
            Counter, "prefix_cache_queries", "Prompt tokens looked up in the prefix cache."
        )
        self._draft_passes = made(
            Counter, "spec_decode_num_drafts", "Passes of a sequence that verified drafts."
        )
        self._drafted_tokens = made(
            Counter, "spec_decode_num_draft_tokens", "Tokens drafted for such passes."
        )
        self._accepted_tokens = made(
            Counter, "spec_decode_num_accepted_tokens", "Drafted tokens that were accepted."
        )
        self._prefix_hits = made(
            Counter, "prefix_cache_hits", "Prompt tokens found in the prefix cache."
        )
        self._ttft = made(
            Histogram, "time_to_first_token_seconds", "From arrival to first token.", *_TTFT_S
        )
        self._itl = made(
            Histogram, "inter_token_latency_seconds", "Between tokens of a request.", *_ITL_S
        )
        self._e2e = made(
            Histogram, "e2e_request_latency_seconds", "From arrival to last token.", *_E2E_S
        )
        self._step_tokens = made(
            Histogram, "iteration_tokens_total", "Positions computed in a step.", *_TOKENS
        )
        success = Counter(
            "vllm:request_success",
            "Requests that ended, by reason.",
            ("model_name", "finished_reason"),
            registry=self._registry,
        )
        self._success = {reason: success.labels(model_name, reason) for reason in FINISHED_REASONS}

    def token(self, timing: RequestTiming, event: TokenEvent, now_s: float) -> None:
        """Count a token of a request."""
        self._generation_tokens.inc()
        if timing.last_token_s is None:
            self._prompt_tokens.inc(timing.prompt_tokens)
            self._ttft.observe(now_s - timing.arrived_s)
        else:
            self._itl.observe(now_s - timing.last_token_s)
        timing.last_token_s = now_s
        if event.finish_reason:
            self._e2e.observe(now_s - timing.arrived_s)
            self._success[event.finish_reason].inc()

    def aborted(self) -> None:
        """Count a request that ended without its last token."""
        self._success["abort"].inc()

    def failed(self) -> None:
        """Count a request that raised in the core."""
        self._success["error"].inc()

    def core_started(self) -> None:
        """Begin anew with a core that has no requests and whose totals are 0."""
        self._core = CoreStats()
        self.core(self._core)

    def core(self, stats: CoreStats) -> None:
        """Set the gauges from the state of the core."""
        before, self._core = self._core, stats
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._kv_usage.set(stats.kv_usage)
        self._preemptions.inc(stats.preemptions - before.preemptions)
        self._prefix_queries.inc(stats.prefix_queries - before.prefix_queries)
        self._prefix_hits.inc(stats.prefix_hits - before.prefix_hits)
        self._draft_passes.inc(stats.draft_passes - before.draft_passes)
        self._drafted_tokens.inc(stats.drafted_tokens - before.drafted_tokens)
        self._accepted_tokens.inc(stats.accepted_tokens - before.accepted_tokens)
        if stats.steps > before.steps:
            self._step_tokens.observe(stats.step_tokens)

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)
