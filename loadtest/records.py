"""From what was recorded to the columns of a run, and to how well the load was delivered."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from loadtest.exchange import Exchange, Failure
from loadtest.schedule import Send
from loadtest.stream import Stream, read_stream
from sim.metrics import REQUEST_COLUMNS, derive

EXTRA_COLUMNS = (
    "first_chunk_tokens",
    "asked_output_tokens",
    "ttft_sent_s",
    "chunk_s",
    "response_id",
)
"""Columns of a load test beside ``REQUEST_COLUMNS``.

``first_chunk_tokens`` came with the first token event, ``asked_output_tokens`` stood in the trace,
``ttft_sent_s`` is first_token - sent, ``chunk_s`` lists the stamps of all token events,
``response_id`` is the server's own name of the answer.
"""

LATE_S = 0.020
"""A client later than this at p99, in its schedule or its event loop, is the limit itself."""
LATE_SHARE_OF_TTFT = 0.01


def requests_frame(
    sends: Sequence[Send], exchanges: Sequence[Exchange], zero_ns: int, unsent: str
) -> tuple[pd.DataFrame, dict[str, str]]:
    """One row per request, all stamps in seconds from zero; and the first message per failure.

    ``error`` holds the kind of failure (``loadtest.exchange.Failure``). ``unsent`` says why
    requests were never sent, where some were not. What a server cannot tell from outside is empty:
    ``preemptions`` 0, ``queue_s`` undefined.
    """
    rows, first_messages = [], dict[str, str]()
    for send, exchange in zip(sends, exchanges, strict=True):
        if exchange.sent_ns is None and exchange.failure is None:
            exchange.failure = Failure("cancelled", f"not sent: {unsent}")
        stream = read_stream(exchange)
        rows.append(_row(send, exchange.sent_ns, stream, zero_ns))
        if stream.failure:
            first_messages.setdefault(stream.failure.kind, stream.failure.message)
    frame = derive(pd.DataFrame(rows))
    frame["ttft_sent_s"] = frame["first_token_s"] - frame["sent_s"]
    return frame[[*REQUEST_COLUMNS, *EXTRA_COLUMNS]], first_messages


def _row(send: Send, sent_ns: int | None, stream: Stream, zero_ns: int) -> dict[str, Any]:
    chunk_s = (np.array(stream.stamps_ns, dtype=np.int64) - zero_ns) / 1e9
    prompt_tokens = stream.prompt_tokens
    return {
        "request_id": send.request.request_id,
        "status": stream.failure.status if stream.failure else "finished",
        "scheduled_s": send.send_at_s,
        "sent_s": np.nan if sent_ns is None else (sent_ns - zero_ns) / 1e9,
        "first_token_s": chunk_s[0] if len(chunk_s) else np.nan,
        "last_token_s": chunk_s[-1] if len(chunk_s) else np.nan,
        "prompt_tokens": send.request.prompt_tokens if prompt_tokens is None else prompt_tokens,
        "output_tokens": stream.output_tokens,
        "cached_tokens": stream.cached_tokens,
        "preemptions": 0,
        "queue_s": np.nan,
        "replica": 0,
        "error": stream.failure.kind if stream.failure else None,
        "first_chunk_tokens": stream.tokens[0] if stream.tokens else 0,
        "asked_output_tokens": send.request.output_tokens,
        "chunk_s": chunk_s,
        "response_id": stream.response_id,
    }


def delivered(
    requests: pd.DataFrame, oversleeps_s: Sequence[float], cpu_share: float
) -> dict[str, Any]:
    """How well the load was delivered: rates, lateness, failures, and whether to trust it.

    ``lag`` is sent - scheduled; ``cpu_share`` the client's CPU time per second. The client is
    "client limited" when lag p99 exceeds 20 ms and 1 % of the median TTFT, or when its event loop
    wakes more than 20 ms late at p99.
    """
    lag_s = (requests["sent_s"] - requests["scheduled_s"]).dropna()
    lag_p99_s = _percentile(lag_s, 99)
    oversleep_p99_s = _percentile(oversleeps_s, 99)
    failures = requests["error"].value_counts()
    return {
        "offered_per_s": _rate_per_s(requests["scheduled_s"]),
        "sent_per_s": _rate_per_s(requests["sent_s"].dropna()),
        "lag_p50_s": _percentile(lag_s, 50),
        "lag_p99_s": lag_p99_s,
        "loop_oversleep_p99_s": oversleep_p99_s,
        "client_cpu_share": cpu_share,
        "verdict": _verdict(lag_p99_s, oversleep_p99_s, _percentile(requests["ttft_s"], 50)),
        "failures": {str(kind): int(count) for kind, count in failures.items()},
    }


def _verdict(
    lag_p99_s: float | None, oversleep_p99_s: float | None, ttft_p50_s: float | None
) -> str:
    if lag_p99_s is None:
        return "nothing sent"
    late_s = max(LATE_S, LATE_SHARE_OF_TTFT * (ttft_p50_s or 0.0))
    limited = lag_p99_s > late_s or (oversleep_p99_s or 0.0) > LATE_S
    return "client limited" if limited else "client ok"


def _rate_per_s(stamps_s: pd.Series) -> float | None:
    """Mean rate (n - 1) / span, as of a trace; None where the span is 0."""
    span_s = float(stamps_s.max() - stamps_s.min()) if len(stamps_s) else 0.0
    return (len(stamps_s) - 1) / span_s if span_s > 0 else None


def _percentile(values: ArrayLike, q: float) -> float | None:
    defined = np.asarray(values, dtype=float)
    defined = defined[np.isfinite(defined)]
    return float(np.percentile(defined, q)) if len(defined) else None
