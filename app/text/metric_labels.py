"""The metrics in words: label, unit and definition (``sim.records.metrics`` computes them)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A value times ``factor`` is in ``unit``."""

    label: str
    unit: str
    factor: float
    definition: str

    @property
    def title(self) -> str:
        """``TTFT, ms``; without a unit, the label alone."""
        return f"{self.label}, {self.unit}" if self.unit else self.label


METRICS = {
    "ttft_s": Metric(
        "TTFT", "ms", 1e3, "time to first token: first token - scheduled, so a late client counts"
    ),
    "ttft_sent_s": Metric("TTFT from sent", "ms", 1e3, "first token - sent"),
    "tpot_s": Metric(
        "TPOT",
        "ms",
        1e3,
        "time per output token: (last token - first token) / (output tokens - tokens of the "
        "first chunk); undefined, not 0, for an answer of one chunk",
    ),
    "gap_s": Metric(
        "chunk gap (ITL)", "ms", 1e3, "between consecutive chunks of a request, all requests pooled"
    ),
    "e2e_s": Metric("E2E latency", "ms", 1e3, "last token - scheduled"),
    "decode_tps": Metric("decode TPS", "tokens/s", 1.0, "1 / TPOT, per request"),
    "request_tps": Metric("request TPS", "tokens/s", 1.0, "output tokens / E2E latency"),
    "lag_s": Metric("schedule lag", "ms", 1e3, "sent - scheduled: how late the client was"),
    "output_throughput_tokens_per_s": Metric(
        "output throughput",
        "tokens/s",
        1.0,
        "output tokens of finished requests / (last token - first scheduled); prompts not counted",
    ),
    "request_throughput_per_s": Metric(
        "request throughput",
        "requests/s",
        1.0,
        "finished requests / (last token - first scheduled)",
    ),
    "goodput_per_s": Metric(
        "goodput",
        "requests/s",
        1.0,
        "finished requests within every limit of the SLO / (last token - first scheduled)",
    ),
    "slo_attainment": Metric(
        "SLO attainment",
        "%",
        1e2,
        "requests within every limit / all that were scheduled, failures included",
    ),
    "prefix_hit_rate_tokens": Metric(
        "prefix hits", "%", 1e2, "prompt tokens found in the prefix cache / prompt tokens"
    ),
    "preemptions": Metric("preemptions", "", 1.0, "how often a request lost its KV memory"),
}
