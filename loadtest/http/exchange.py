"""One request and its answer as recorded: stamps and bytes, nothing parsed."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from servetwin.loadtest.dialects.server_probe import redirect_target
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.http.transport import ANSWER, Post
from servetwin.loadtest.redaction import hide_secrets, redact
from servetwin.workloads.request import CANCELLED_BY_TEST

ORPHANED = "orphaned"
MESSAGE_LENGTH = 300
_STATUSES = {
    "http_429": "refused",
    "cancelled": "cancelled",
    CANCELLED_BY_TEST: "cancelled",
    ORPHANED: "cancelled",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request did not end as a complete stream.

    ``kind`` is one of connect, timeout, http_429, http_4xx, http_5xx, broken_stream, sse_error,
    no_token, cancelled, cancelled_by_test (``loadtest.options``), orphaned (its parent
    was not answered), client_lost (``loadtest.run.worker_pool``).
    """

    kind: str
    message: str

    @property
    def status(self) -> str:
        """The status of a request with this failure."""
        return _STATUSES.get(self.kind, "failed")


@dataclass(slots=True)
class Exchange:
    """The record of one request: what was sent and what came back.

    ``reads`` are (``time.perf_counter_ns`` on arrival, bytes) for each read of a successful answer.
    ``sent_ns`` is taken at the first attempt, before its first byte goes to the socket, or before
    its connection is opened; None for a request that was never sent. ``left`` says that its client
    hung up. Nothing is added once it has ``ended``.
    """

    sent_ns: int | None = None
    reads: Iterable[tuple[int, bytes]] = field(default_factory=RecordedReads)
    headers: httpx.Headers | None = None
    failure: Failure | None = None
    ended: bool = False
    status_code: int | None = None
    attempts: int = 1
    left: bool = False

    def begin_again(self) -> None:
        """Drop the answer before another attempt."""
        self.attempts += 1
        self.reads, self.headers, self.failure, self.status_code = RecordedReads(), None, None, None


# Takes each piece of the answer and returns whether the client hangs up now.
HangsUp = Callable[[bytes], bool]


async def run_exchange(
    post: Post,
    body: bytes,
    exchange: Exchange,
    timeout_s: float,
    hangs_up: HangsUp | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Post ``body`` and record the answer, or the failure, into ``exchange``.

    ``headers`` are those of this request alone.
    """
    exchange.sent_ns = exchange.sent_ns or time.perf_counter_ns()
    try:
        async with asyncio.timeout(timeout_s):
            await _receive(await post(body, headers), exchange, hangs_up)
    except asyncio.CancelledError:
        exchange.failure = Failure("cancelled", "in flight when interrupted")
        raise
    except TimeoutError:
        exchange.failure = Failure("timeout", f"no complete answer within {timeout_s:.4g} s")
    except httpx.HTTPError as error:
        exchange.failure = _failure(error)


async def _receive(response: httpx.Response, exchange: Exchange, hangs_up: HangsUp | None) -> None:
    exchange.headers, exchange.status_code = response.headers, response.status_code
    try:
        if response.status_code == 200:
            await _record(response, exchange, hangs_up)
        else:
            await response.aread()
            exchange.failure = _http_failure(response)
    finally:
        await response.aclose()
        # httpx's response and its stream hold each other, and garbage collection is off.
        response.stream = httpx.ByteStream(b"")


async def _record(response: httpx.Response, exchange: Exchange, hangs_up: HangsUp | None) -> None:
    """Record the body with the transport's stamps, else with those of this task's wake-ups."""
    answer = response.extensions.get(ANSWER)
    exchange.reads = reads = answer.reads if answer else RecordedReads()
    if answer and hangs_up is None:
        await answer.whole()
        return
    async for data in answer or _stamped(response, reads):
        if hangs_up and hangs_up(data):
            exchange.left = True
            return


async def _stamped(response: httpx.Response, reads: RecordedReads) -> AsyncIterator[bytes]:
    async for data in response.aiter_raw():
        reads.add(time.perf_counter_ns(), data)
        yield data


def _failure(error: httpx.HTTPError) -> Failure:
    refused = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    kind = "connect" if refused else "broken_stream"
    return Failure(kind, redact(str(error)) or type(error).__name__)


def _http_failure(response: httpx.Response) -> Failure:
    code = response.status_code
    retry = response.headers.get("retry-after")
    wait = f" (Retry-After: {retry})" if retry else ""
    target = redirect_target(response)
    reason = f"redirects to {target}" if target else _error_text(response)
    return Failure(failure_kind(code), redact(f"HTTP {code}{wait}: {reason}"))


def failure_kind(status: int) -> str:
    """Return the kind of failure of a status other than 200."""
    return "http_429" if status == 429 else f"http_{status // 100}xx"


def _error_text(response: httpx.Response) -> str:
    """Return the error message in OpenAI's shape, else the start of the body."""
    try:
        return error_message(json.loads(response.content))
    except (ValueError, RecursionError):
        return hide_secrets(response.text, MESSAGE_LENGTH)


def error_message(body: Any) -> str:
    """Return the text of an error object: ``{"error": {"message": ...}}`` or a part of it."""
    while isinstance(body, dict) and ("error" in body or "message" in body):
        body = body.get("error") or body.get("message")
    return hide_secrets(str(body), MESSAGE_LENGTH)
