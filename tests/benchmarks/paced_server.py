"""A server that streams on time: tokens at absolute due times, and a log of what it really did.

``python -m tests.benchmarks.paced_server`` prints its port, serves until its stdin ends, then
prints, as JSON, how late it wrote at p99 (``late_p99_ns``), and for each of its ``answers``, by id,
``[arrival, first write, last write]`` in nanoseconds of ``time.perf_counter_ns``.
"""

import asyncio
import heapq
import json
import sys
import time
from array import array
from collections.abc import Iterator
from typing import cast

import numpy as np
import typer

from servetwin.loadtest.run.event_loop import run_fast

TICK_S = 0.001
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
MODELS = b'{"data": [{"id": "paced"}]}'
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(name: str, text: str, finish: str | None) -> bytes:
    choices = [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]
    fields = {"id": name, "object": "text_completion", "created": 1, "model": "paced"}
    return chunk(b"data: " + json.dumps({**fields, "choices": choices}).encode() + b"\n\n")


class Pacer:
    """Writes what is due, every millisecond."""

    def __init__(self, ttft_ns: int, interval_ns: int) -> None:
        self._ttft_ns = ttft_ns
        self._interval_ns = interval_ns
        self._due: list[tuple[int, int, int, asyncio.Transport]] = []
        self.log: dict[str, list[int]] = {}
        self.late_ns = array("q")

    def add(self, transport: asyncio.Transport, tokens: int, now_ns: int) -> None:
        number = len(self.log)
        self.log[f"p{number}"] = [now_ns, 0, 0]
        transport.write(SSE)
        heapq.heappush(self._due, (now_ns + self._ttft_ns, number, tokens, transport))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now_ns = time.perf_counter_ns()  # Once: others have their turn when it is late.
            while self._due and self._due[0][0] <= now_ns:
                self._write(*heapq.heappop(self._due))

    def _write(self, due_ns: int, number: int, left: int, transport: asyncio.Transport) -> None:
        name = f"p{number}"
        stamps = self.log[name]
        stamps[2] = time.perf_counter_ns()
        self.late_ns.append(stamps[2] - due_ns)
        stamps[1] = stamps[1] or stamps[2]
        if left > 1:
            transport.write(event(name, " token", None))
            heapq.heappush(self._due, (due_ns + self._interval_ns, number, left - 1, transport))
        else:
            transport.write(event(name, " token", "length") + chunk(DONE) + b"0\r\n\r\n")


class Visitor(asyncio.Protocol):
    """One connection, one request after the other."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        now_ns = time.perf_counter_ns()
        self._pending += data
        for head, body in self._requests():
            if head.startswith(b"GET"):
                self._transport.write(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(MODELS) + MODELS
                )
            elif b"/completions " not in head.partition(b"\r\n")[0]:
                self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            else:
                self._pacer.add(self._transport, json.loads(body)["max_tokens"], now_ns)

    def _requests(self) -> Iterator[tuple[bytes, bytes]]:
        while b"\r\n\r\n" in self._pending:
            head, _, rest = self._pending.partition(b"\r\n\r\n")
            _, _, after = head.lower().partition(b"content-length: ")
            length = int(after.split(b"\r\n")[0] or 0)
            if len(rest) < length:
                return
            self._pending = rest[length:]
            yield head, rest[:length]


async def serve(ttft_s: float, interval_s: float) -> Pacer:
    pacer = Pacer(round(ttft_s * 1e9), round(interval_s * 1e9))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Visitor(pacer), "127.0.0.1", 0, backlog=2048)
    typer.echo(server.sockets[0].getsockname()[1])
    pace = asyncio.ensure_future(pacer.run())
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    await ended.wait()
    pace.cancel()
    server.close()
    return pacer


def main(ttft_s: float, interval_s: float) -> None:
    """Serve on a free port until stdin ends."""
    pacer = run_fast(serve(ttft_s, interval_s))
    late_p99_ns = float(np.percentile(pacer.late_ns, 99)) if pacer.late_ns else 0.0
    typer.echo(json.dumps({"late_p99_ns": late_p99_ns, "answers": pacer.log}))


if __name__ == "__main__":
    typer.run(main)
