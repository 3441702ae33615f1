"""One request as its client sees it: asked, asked again where that is wanted, or left."""

import asyncio
import time

import httpx

from loadtest.http.exchange import Exchange, Failure, run_exchange
from loadtest.options import LoadOptions
from loadtest.plan.cancellation import HangUp
from loadtest.plan.random_streams import Draws, request_stream
from loadtest.plan.retries import is_refusal, retry_wait_s
from loadtest.plan.schedule import ScheduledRequest
from loadtest.stream.token_watch import TokenWatch
from sim.records.metrics import CANCELLED_BY_TEST


class RetryingClient:
    """Asks at one URL; ``options`` say how long, how often, and what is random."""

    def __init__(self, client: httpx.AsyncClient, url: str, options: LoadOptions) -> None:
        self._client = client
        self._url = url
        self._options = options

    async def ask(self, send: ScheduledRequest, exchange: Exchange) -> None:
        """Record the answer into ``exchange``, or what became of it."""
        hang_up = send.hang_up
        if hang_up is None:
            await self._attempts(send, exchange)
            return
        try:
            async with asyncio.timeout(hang_up.after_s):
                await self._attempts(send, exchange)
        except TimeoutError:
            exchange.failure = _hung_up(hang_up)

    async def _attempts(self, send: ScheduledRequest, exchange: Exchange) -> None:
        """The first, and more while the server refuses and there is time for them."""
        end_s = time.monotonic() + self._options.timeout_s
        await self._attempt(send, exchange, self._options.timeout_s)
        if not self._options.retries:
            return
        rng = request_stream(self._options.seed, Draws.BACKOFF, send.request.request_id)
        while is_refusal(exchange) and exchange.attempts <= self._options.retries:
            wait_s = retry_wait_s(exchange, rng)
            if time.monotonic() + wait_s >= end_s:
                return
            await asyncio.sleep(wait_s)
            exchange.begin_again()
            await self._attempt(send, exchange, end_s - time.monotonic())

    async def _attempt(self, send: ScheduledRequest, exchange: Exchange, timeout_s: float) -> None:
        tokens = send.hang_up.after_tokens if send.hang_up else None
        leaves = None if tokens is None else TokenWatch(tokens)
        await run_exchange(self._client, self._url, send.body, exchange, timeout_s, leaves)
        if exchange.left:
            assert send.hang_up
            exchange.failure = _hung_up(send.hang_up)


def _hung_up(hang_up: HangUp) -> Failure:
    return Failure(CANCELLED_BY_TEST, f"hung up {hang_up}")
