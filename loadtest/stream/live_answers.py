"""Answers as they end, while a load test runs: enough to watch it; the records are exact."""

from dataclasses import dataclass

from loadtest.http.exchange import Exchange
from loadtest.stream.token_events import TokenStream


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """One request that has ended. ``ttft_s`` counts from ``sent_s``, ``tpot_s`` is the mean gap of
    the token events, ``failure`` the kind; None where there is none."""

    sent_s: float
    ttft_s: float | None
    tpot_s: float | None
    failure: str | None


def live_answer(exchange: Exchange, stream: TokenStream, zero_ns: int) -> LiveAnswer:
    """What is known of a request that was sent and has ended."""
    assert exchange.sent_ns is not None
    stamps_ns = stream.stamps_ns
    gaps = len(stamps_ns) - 1
    failure = exchange.failure or stream.failure
    return LiveAnswer(
        (exchange.sent_ns - zero_ns) / 1e9,
        (stamps_ns[0] - exchange.sent_ns) / 1e9 if stamps_ns else None,
        (stamps_ns[-1] - stamps_ns[0]) / 1e9 / gaps if gaps > 0 else None,
        failure.kind if failure else None,
    )
