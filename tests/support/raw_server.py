"""Send the exact bytes of a script to every connection: a server for the transport's tests."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from servetwin.loadtest.http.transport import StampingTransport

Handler = Callable[["Caller"], Awaitable[None]]
T = TypeVar("T")
OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
Story = Callable[[httpx.AsyncClient, StampingTransport, str], Awaitable[None]]


@dataclass
class Caller:
    """One connection: ``await ask()`` for its next request, ``say`` bytes, or hang up."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[bytes] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self) -> bytes:
        """The next request, head and body. Raises ``EOFError`` when there is none."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body = await self.reader.readexactly(int(fields.get(b"content-length", 0)))
        self.requests.append(head + body)
        return head + body

    async def say(self, *parts: bytes) -> None:
        """Each part in a segment of its own, as far as that can be had."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0.001)


@dataclass
class RawServer:
    """``callers`` in the order in which they came."""

    port: int = 0
    callers: list[Caller] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/x?y=1"


@asynccontextmanager
async def raw_server(
    handle: Handler, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    """Serves in the running event loop; a handler that returns hangs up."""
    found = RawServer()
    tasks = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        caller = Caller(reader, writer)
        found.callers.append(caller)
        with contextlib.suppress(EOFError, OSError, asyncio.CancelledError):
            await handle(caller)
        with contextlib.suppress(OSError):
            writer.close()
        caller.gone.set()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, 20))


def says(*parts: bytes, hangs_up: bool = False) -> Handler:
    """Answers every request of a connection so."""

    async def handle(caller: Caller) -> None:
        while True:
            await caller.ask()
            await caller.say(*parts)
            if hangs_up:
                return

    return handle


def open_connections(transport: StampingTransport) -> int:
    """Connections that are open now, idle or not."""
    return sum(len(pool._open) for pool in transport._pools.values())


def run_story(handle: Handler, story: Story, keepalive_s: float = 5.0) -> list[Caller]:
    """Run a story of a client with one raw server, and return the connections of the server."""

    async def tell() -> list[Caller]:
        transport = StampingTransport(keepalive_s=keepalive_s)
        async with raw_server(handle) as server, httpx.AsyncClient(transport=transport) as client:
            await story(client, transport, f"http://127.0.0.1:{server.port}")
            await client.aclose()
            assert open_connections(transport) == 0
            await asyncio.gather(*(caller.gone.wait() for caller in server.callers))
        return server.callers

    return run(tell())


async def numbered(caller: Caller) -> None:
    """Answers with the number of the request on its connection; hangs up after /last."""
    while b"/last" not in await caller.ask():
        await caller.say(OK + b"Content-Length: 1\r\n\r\n%d" % len(caller.requests))
    await caller.say(OK + b"Connection: close\r\nContent-Length: 4\r\n\r\nlast")
