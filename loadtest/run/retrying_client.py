"""The client of one request: it sends, retries after a refusal, and may hang up."""

import asyncio
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import numpy as np

from servetwin.loadtest.http.exchange import Exchange, Failure, HangsUp, run_exchange
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.http.transport import Post
from servetwin.loadtest.options import Draws, HangUp, LoadOptions
from servetwin.loadtest.report.rows import Sending
from servetwin.loadtest.stream.stream_reader import StreamReader
from servetwin.workloads.request import CANCELLED_BY_TEST

BUSY_CODES = (429, 503)
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0


class RetryingClient:
    """Posts requests to one URL; ``options`` have the timeout, the retries and the seed."""

    def __init__(self, post: Post, options: LoadOptions) -> None:
        self._post = post
        self._options = options

    async def send(self, sending: Sending) -> None:
        """Send a request and record its answer, or its failure."""
        hang_up = sending.send.hang_up
        if hang_up is None:
            await self._attempts(sending)
            return
        try:
            async with asyncio.timeout(hang_up.after_s):
                await self._attempts(sending)
        except TimeoutError:
            sending.failure = _hung_up(hang_up)

    async def _attempts(self, sending: Sending) -> None:
        """Try once, and again while the server refuses and the timeout leaves time."""
        end_s = time.monotonic() + self._options.timeout_s
        await self._attempt(sending, self._options.timeout_s)
        if not self._options.retries:
            return
        rng = self._options.random_stream(Draws.BACKOFF, sending.send.request.request_id)
        while is_refusal(sending) and sending.attempts <= self._options.retries:
            wait_s = retry_wait_s(sending, rng)
            if time.monotonic() + wait_s >= end_s:
                return
            await asyncio.sleep(wait_s)
            sending.begin_again()
            await self._attempt(sending, end_s - time.monotonic())

    async def _attempt(self, sending: Sending, timeout_s: float) -> None:
        send = sending.send
        tokens = send.hang_up.after_tokens if send.hang_up else None
        hangs_up = None if tokens is None else token_watch(tokens)
        headers = send.request.headers
        await run_exchange(self._post, send.body, sending, timeout_s, hangs_up, headers)
        if sending.left:
            assert send.hang_up
            sending.failure = _hung_up(send.hang_up)


def token_watch(tokens: int) -> HangsUp:
    """Return what counts the tokens of an answer while it comes in, for a client that hangs up.

    It says whether the answer reaches the count with a piece and goes on after it.
    """
    reads = RecordedReads()
    reader = StreamReader(Exchange(reads=reads))

    def hangs_up(data: bytes) -> bool:
        reads.add(0, data)
        reader.advance(1)
        stream = reader.stream
        return sum(stream.tokens) >= tokens and not (stream.done or stream.finished)

    return hangs_up


def is_refusal(exchange: Exchange) -> bool:
    """Return whether the server did not take the request: 429, 503, or no connection."""
    if exchange.failure is None:
        return False
    return exchange.failure.kind == "connect" or exchange.status_code in BUSY_CODES


def retry_wait_s(exchange: Exchange, rng: np.random.Generator) -> float:
    """Return the seconds until the next attempt: ``Retry-After``, else exponential backoff.

    The backoff doubles from 0.5 s up to 30 s. Half of it is fixed and half is drawn, so that
    clients that were refused together do not come back together.
    """
    header = exchange.headers.get("retry-after") if exchange.headers is not None else None
    wanted_s = retry_after_s(header, datetime.now(UTC)) if header else None
    if wanted_s is not None:
        return wanted_s
    longest_s: float = min(FIRST_WAIT_S * 2.0 ** (exchange.attempts - 1), LONGEST_WAIT_S)
    return longest_s * (0.5 + 0.5 * float(rng.random()))


def retry_after_s(text: str, now: datetime) -> float | None:
    """Read a ``Retry-After`` header (RFC 9110, 10.2.3): seconds, or an HTTP date counted from
    ``now``; None for text that is neither."""
    if text.strip().isascii() and text.strip().isdigit():
        return float(text)
    try:
        due = parsedate_to_datetime(text)
    except ValueError:
        return None
    due = due if due.tzinfo else due.replace(tzinfo=UTC)
    return max(0.0, (due - now).total_seconds())


def _hung_up(hang_up: HangUp) -> Failure:
    return Failure(CANCELLED_BY_TEST, f"hung up {hang_up}")
