"""Mock endpoints in a thread, and load tests of several at once."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pandas as pd

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.mock.faults import Fault
from servetwin.loadtest.mock.plan import MockPlan, parse_fault
from servetwin.loadtest.mock.server import MockServer
from servetwin.loadtest.mock.truth import Truth
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.plan.schedule import ClockZero, build_schedule
from servetwin.loadtest.report.records import requests_frame
from servetwin.loadtest.run.event_loop import quiet_gc
from servetwin.loadtest.run.worker_client import WorkerClient
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.mock_truth import KeptTruth

BODY = b'{"prompt": "a b", "max_tokens": 2}'
POST = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n" % len(BODY)
TWO = POST + b"\r\n" + BODY + b"GET /health?now HTTP/1.1\r\nConnection: close\r\n\r\n"
"""A request for text and one for the health of the mock."""


def plan(*faults: str | Fault, **settings: Any) -> MockPlan:
    made = (parse_fault(fault) if isinstance(fault, str) else fault for fault in faults)
    return MockPlan(faults=tuple(made), **settings)


@contextmanager
def mocked(*plans: MockPlan) -> Iterator[list[MockServer]]:
    """They share a thread and its event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    servers = asyncio.run_coroutine_threadsafe(_start(plans), loop).result(10)
    try:
        yield servers
    finally:
        asyncio.run_coroutine_threadsafe(_stop(servers), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _start(plans: tuple[MockPlan, ...]) -> list[MockServer]:
    servers = [MockServer(plan, KeptTruth()) for plan in plans]
    for server in servers:
        await server.start()
    return servers


async def _stop(servers: list[MockServer]) -> None:
    for server in servers:
        await server.stop()


def evenly(count: int, per_s: float, output_tokens: int) -> Trace:
    requests = (Request(f"r{n}", n / per_s, 5, output_tokens) for n in range(count))
    return Trace(tuple(requests), "even.jsonl")


Loaded = tuple[pd.DataFrame, dict[str, str]]
"""Requests, and the first message by kind of failure."""


def load_all(
    endpoints: Mapping[str, Endpoint], trace: Trace, apart_s: float = 0.0, **options: Any
) -> dict[str, Loaded]:
    """The same trace against each, at the same time but for ``apart_s`` between their starts.

    Without that every request would come in a burst of all endpoints, and wait for the others.
    """

    async def every() -> list[WorkerClient]:
        async with AsyncExitStack() as stack:
            # All are open before the first one starts: to open one keeps the loop for long.
            clients = [
                await stack.enter_async_context(
                    WorkerClient(endpoint, build_schedule(trace, endpoint), LoadOptions(**options))
                )
                for endpoint in endpoints.values()
            ]
            zeros = (ClockZero.after(0.2 + index * apart_s) for index in range(len(clients)))
            await asyncio.gather(*(it.run(zero) for it, zero in zip(clients, zeros, strict=True)))
        return clients

    with quiet_gc():
        clients = asyncio.run(every())
    results = (client.result() for client in clients)
    loaded = ((requests_frame(result.rows), result.first_messages) for result in results)
    return dict(zip(endpoints, loaded, strict=True))


def chat(server: MockServer) -> Endpoint:
    return Endpoint(f"{server.url}/v1", "mock", api="chat")


def completions(server: MockServer) -> Endpoint:
    return Endpoint(f"{server.url}/v1", "mock")


def truths(server: MockServer) -> dict[str, Truth]:
    """By the name that the answers have."""
    assert isinstance(server.truth, KeptTruth)
    return {truth.request_id: truth for truth in server.truth.records}


def spoken(*sent: bytes, served: MockPlan | None = None) -> bytes:
    """All that comes back on one connection until the server closes it."""
    with (
        mocked(served or plan(ttft_ms=0, itl_ms=0)) as (server,),
        socket.create_connection(address(server.url), 5) as client,
    ):
        for data in sent:
            client.sendall(data)
        return b"".join(iter(lambda: client.recv(65_536), b""))


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)
