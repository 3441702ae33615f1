"""A scripted HTTP server for the load tester's tests: it sends exactly the bytes of its script."""

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from servetwin.workloads.program.listening import stop_accepting

MODELS = {"data": [{"id": "mock", "max_model_len": 4096, "vocab_size": 1000}]}
SSE = {"Content-Type": "text/event-stream"}


@dataclass(frozen=True)
class Reply:
    """Segments are sent as one HTTP chunk each, so the client reads them one by one.

    A float between them is a pause in seconds. ``ending``: clean, or cut before the end.
    """

    segments: tuple[bytes | float, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(SSE))
    ending: Literal["clean", "cut"] = "clean"


@dataclass(frozen=True)
class Arrival:
    at_s: float
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


Script = Callable[[dict[str, Any]], Reply]


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"


def text(value: str, finish: str | None = None, **more: object) -> bytes:
    return event(choices=[{"text": value, "finish_reason": finish, **more}])


def delta(finish: str | None = None, **channels: object) -> bytes:
    return event(choices=[{"delta": channels, "finish_reason": finish}])


def usage(tokens: int, prompt: int = 7, cached: int | None = None) -> bytes:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    counts = {"prompt_tokens": prompt, "completion_tokens": tokens, **details}
    return event(choices=[], usage=counts)


DONE = b"data: [DONE]\n\n"


def stream_of(tokens: int, pause_s: float = 0.0) -> Reply:
    """A plain completions stream, a pause before each token."""
    segments: list[bytes | float] = []
    for index in range(tokens):
        segments += [pause_s, text(f"t{index} ", "length" if index == tokens - 1 else None)]
    return Reply((*segments, usage(tokens), DONE))


class ScriptedServer:
    """Runs in a thread of its own; ``arrivals`` are the POSTs in the order they came.

    No request is answered before ``hold_until`` of them have come.
    """

    def __init__(
        self, script: Script, hold_until: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.script = script
        self._tls = tls
        self._hold_until = hold_until
        self._all_here = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.arrivals: list[Arrival] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self._tls else f"http://127.0.0.1:{self.port}"

    def stop_listening(self) -> None:
        """Called by the script: the next connections are refused, those open go on."""
        assert self._server is not None
        stop_accepting(self._server)

    def restart(self, away_s: float) -> None:
        """Called by the script: the next connections are refused, later ones are not."""
        self.stop_listening()
        self._loop.call_later(away_s, lambda: self._loop.create_task(self._open()))

    def kill(self) -> None:
        """As a killed process looks to its clients: nothing listens, connections break."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)

    @contextlib.contextmanager
    def running(self) -> Iterator["ScriptedServer"]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
            yield self
        finally:
            self.kill()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        stop_accepting(self._server)
        for _ in range(2):  # until connections that were accepted just now have a writer
            await asyncio.sleep(0)
        for writer in self._writers:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split()
        lines = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in lines}
        if method == "GET":
            await _send(writer, _json_reply(MODELS))
            return
        at_s = time.perf_counter()
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.arrivals.append(Arrival(at_s, path, headers, body))
        if len(self.arrivals) >= self._hold_until:
            self._all_here.set()
        await self._all_here.wait()
        await _send(writer, self.script(body))


def _json_reply(body: object) -> Reply:
    return Reply((json.dumps(body).encode(),), headers={"Content-Type": "application/json"})


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    headers = {**reply.headers, "Transfer-Encoding": "chunked", "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode())
    for segment in reply.segments:
        if isinstance(segment, float):
            await writer.drain()
            await asyncio.sleep(segment)
        else:
            writer.write(b"%x\r\n%b\r\n" % (len(segment), segment))
    if reply.ending == "clean":
        writer.write(b"0\r\n\r\n")
    await writer.drain()


def cut_at(body: bytes, cuts: set[int]) -> list[bytes]:
    """The pieces of a body between the cuts that lie in it."""
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(body)), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]
