"""Receive the bodies of requests: bounded in size, in time, and in the number of large ones."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.requests import Request

from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.client_shares import LARGE_BODIES, Client

# Larger bodies are parsed in another process, and only a limited number are held at a time.
LARGE_BODY_BYTES = 64 << 10
# How long a body may take to arrive.
RECEIVE_LIMIT_S = 60.0
DISCARD_LIMIT_S = 10.0
# How much of a body that is too large is read, so that its client comes to read the answer.
DISCARD_LIMIT_BYTES = 64 << 20


class BodyReader:
    """Receives the bodies of all requests of a server."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._large_bodies = asyncio.Semaphore(LARGE_BODIES)

    @asynccontextmanager
    async def received(self, request: Request, client: Client) -> AsyncIterator[bytearray]:
        """Receive a body; one of the large ones is held only for as long as the block lasts.

        Raises ``ApiError``: 413 for a body that is too large, 408 for one that takes too long, in
        the queue of large ones too.
        """
        declared = request.headers.get("content-length", "")
        chunks = aiter(request.stream())
        if declared.isdigit() and int(declared) > self._max_body_bytes:
            if "expect" not in request.headers:
                await _discard(chunks)
            raise self._too_large()
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(RECEIVE_LIMIT_S):
                    body = await self._receive(chunks, client, held)
            except TimeoutError:
                raise _too_slow() from None
            yield body

    async def _receive(
        self, chunks: AsyncIterator[bytes], client: Client, held: AsyncExitStack
    ) -> bytearray:
        body = bytearray()
        is_large = False
        async for chunk in chunks:
            body += chunk
            if len(body) > self._max_body_bytes:
                body.clear()
                await _discard(chunks)
                raise self._too_large()
            if len(body) > LARGE_BODY_BYTES and not is_large:
                is_large = True
                await held.enter_async_context(client.large_bodies)
                await held.enter_async_context(self._large_bodies)
        return body

    def _too_large(self) -> ApiError:
        limit_mib = self._max_body_bytes / (1 << 20)
        message = f"the body is larger than {limit_mib:g} MiB (--max-body)"
        return ApiError(413, message, code="body_too_large", headers={"connection": "close"})


def _too_slow() -> ApiError:
    message = f"the body did not arrive within {RECEIVE_LIMIT_S:g} s"
    return ApiError(408, message, code="body_too_slow", headers={"connection": "close"})


async def _discard(chunks: AsyncIterator[bytes]) -> None:
    """Read the rest of a body and throw it away, up to a limit."""
    left = DISCARD_LIMIT_BYTES
    try:
        async with asyncio.timeout(DISCARD_LIMIT_S):
            async for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    return
    except TimeoutError:
        return
