"""Connections are used again, closed when old, and replaced where the server closed them."""

import asyncio
import socket

import httpx
import pytest

from servetwin.loadtest.http.connection import Connection
from servetwin.loadtest.http.transport import StampingTransport
from tests.support.raw_server import CHUNKED, HELLO, Caller, Handler, numbered, run_story, says


def test_one_after_the_other_share_a_connection() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        bodies = [(await client.get(f"{url}/{index}")).text for index in range(3)]
        assert bodies == ["1", "2", "3"]
        assert (await client.get(f"{url}/last")).text == "last"
        assert (await client.get(f"{url}/again")).text == "1"

    assert len(run_story(numbered, story)) == 2


def test_the_connection_used_last_is_used_next() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await asyncio.gather(*(client.get(f"{url}/first") for _ in range(4)))
        assert transport.open_connections == 4
        for index in range(4):
            await client.get(f"{url}/{index}")

    callers = run_story(numbered, story)
    assert sorted(len(caller.requests) for caller in callers) == [1, 1, 1, 5]


def test_old_connections_are_closed_and_not_used() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await asyncio.gather(*(client.get(url) for _ in range(3)))
        await asyncio.sleep(0.1)
        assert (await client.get(url)).text == "1"
        await asyncio.sleep(0)
        assert transport.open_connections == 1

    assert len(run_story(numbered, story, keepalive_s=0.05)) == 4


def test_a_body_that_is_not_read_closes_its_connection() -> None:
    endless = says(CHUNKED, *[b"1\r\na\r\n"] * 5)

    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        async with client.stream("GET", url) as answer:
            async for piece in answer.aiter_raw():
                assert piece == b"a"
                break
        await asyncio.sleep(0.02)
        assert transport.open_connections == 0

    run_story(endless, story)


async def all_closed(transport: StampingTransport) -> None:
    """Wait for the end of every connection; the story fails where one stays open."""
    pools = transport._pools.values()
    await asyncio.gather(*(connection.closed for pool in pools for connection in pool._open))
    assert transport.open_connections == 0


def test_a_request_that_is_given_up_closes_its_connection() -> None:
    """Cancelled before the head, and within the body."""

    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.get(url)
            await all_closed(transport)

    async def slow(caller: Caller) -> None:
        await caller.ask()
        await caller.say(*parts.pop())
        await caller.ask()

    parts = [(CHUNKED, b"1\r\na\r\n"), ()]
    assert len(run_story(slow, story)) == 2


def test_an_unasked_answer_ends_the_connection() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        for _ in range(2):
            assert (await client.get(url)).text == "hello"
            await all_closed(transport)

    assert len(run_story(says(HELLO, b"HTTP/1.1 408 Too late\r\n\r\n"), story)) == 2


def closing(after_s: float) -> Handler:
    """Takes the second request of a connection and hangs up on it."""

    async def handle(caller: Caller) -> None:
        await caller.ask()
        await caller.say(HELLO)
        await caller.ask()
        await asyncio.sleep(after_s)

    return handle


@pytest.mark.parametrize(
    ("after_s", "callers", "resent"),
    [
        pytest.param(0.0, 2, 1, id="crossed", marks=pytest.mark.quiet),
        pytest.param(0.2, 1, 0, id="worked on"),
    ],
)
def test_only_a_request_that_crossed_the_close_is_sent_again(
    after_s: float, callers: int, resent: int
) -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await client.get(url)
        if resent:
            assert (await client.get(url)).text == "hello"
        else:
            with pytest.raises(httpx.RemoteProtocolError, match="without an answer"):
                await client.get(url)
        assert transport.resent == resent

    assert len(run_story(closing(after_s), story)) == callers


def test_no_request_is_sent_again_on_a_fresh_connection() -> None:
    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(url)
        assert transport.resent == 0

    assert len(run_story(says(hangs_up=True), story)) == 1


def test_nodelay_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    made = Connection.connection_made

    def look(connection: Connection, transport: asyncio.BaseTransport) -> None:
        plug = transport.get_extra_info("socket")
        found.append(plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(connection, transport)

    monkeypatch.setattr(Connection, "connection_made", look)

    async def story(client: httpx.AsyncClient, transport: StampingTransport, url: str) -> None:
        await client.get(url)

    run_story(numbered, story)
    assert found
    assert all(found)
