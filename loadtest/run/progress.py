"""The progress of a running load test: how many requests were sent, and the newest answers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.stream.token_events import TokenStream


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """A request that has ended: enough to watch the test, the records are exact.

    ``ttft_s`` counts from ``sent_s`` (seconds since the start), ``tpot_s`` is the mean gap between
    its token events, ``failure`` the kind of failure; each is None where there is none.
    """

    sent_s: float
    ttft_s: float | None
    tpot_s: float | None
    failure: str | None


def live_answer(exchange: Exchange, stream: TokenStream, zero_ns: int) -> LiveAnswer:
    """Return what is known of a request that was sent and has ended."""
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


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a running load test, in requests; ``ended`` includes ``failed``.

    ``total`` grows while users start over. ``answers`` are the answers read since the last report,
    and ``journal`` has the lines of the requests that have ended since then.
    """

    elapsed_s: float
    total: int
    sent: int
    ended: int
    failed: int
    answers: tuple[LiveAnswer, ...] = ()
    journal: bytes = b""


# What a load test calls with its progress.
OnProgress = Callable[[Progress], None]


@contextmanager
def progress_reports(
    state: Callable[[], Progress], every_s: float, on_progress: OnProgress | None
) -> Iterator[None]:
    """Call ``on_progress`` with the state every ``every_s`` seconds, and once more at the end."""
    if on_progress is None:
        yield
        return
    task = asyncio.ensure_future(_report(state, every_s, on_progress))
    try:
        yield
    finally:
        task.cancel()
        on_progress(state())


async def _report(state: Callable[[], Progress], every_s: float, on_progress: OnProgress) -> None:
    while True:
        await asyncio.sleep(every_s)
        on_progress(state())
