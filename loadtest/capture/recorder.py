"""Writes a trace of the requests that pass through a tunnel: times, counts and hashes, no text."""

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from servetwin.loadtest.capture.rows import Rows
from servetwin.loadtest.capture.tunnel import ClientSide, Passing, Upstream
from servetwin.loadtest.http.exchange import Exchange
from servetwin.loadtest.http.recorded_reads import RecordedReads
from servetwin.loadtest.run.event_loop import stop_signals
from servetwin.loadtest.stream.read_ahead import AnswerReader, ReadAhead
from servetwin.loadtest.stream.stream_reader import StreamReader
from servetwin.loadtest.stream.token_events import TokenStream
from servetwin.loadtest.stream.whole_answer import WholeAnswerReader
from servetwin.workloads.anonymous import NOTE, Anonymiser
from servetwin.workloads.errors import LoadTestError, TraceError
from servetwin.workloads.program.listening import listening_socket, url_of
from servetwin.workloads.readers.native import SCHEMA

# The ends of the paths that are recorded.
PATHS = ("/chat/completions", "/completions")
# Of all requests whose rows are not written yet; one that would hold more passes unrecorded.
MOST_HELD_BYTES = 2**28
_BACKLOG = 1024


@dataclass(slots=True)
class Recorded:
    """What was recorded; ``error`` says why rows are missing.

    ``unheld`` requests passed unrecorded: the bodies under way would have been too many bytes.
    """

    requests: int = 0
    failed: int = 0
    unheld: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str = ""


class Recorder:
    """Observes a tunnel and writes a row for each request for text once it has ended.

    Answers are read in the idle time of the event loop, rows are made in a thread. A place that
    cannot be written any more ends the recording, never the tunnel.
    """

    def __init__(self, path: Path) -> None:
        self._passing: dict[int, Passing] = {}
        self._reading = ReadAhead(_reader, self._read)
        self._thread = ThreadPoolExecutor(1)
        self._rows: Rows | None = None
        self._held_bytes = 0
        self._released_bytes = 0  # counted by the thread
        self.recorded = Recorded()
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise TraceError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            self._write({"schema": SCHEMA, "source": "recorded", "notes": [NOTE]})
        except OSError as error:
            self._file.close()
            raise TraceError(f"{path}: cannot be written: {error.strerror}") from None

    def begun(self, passing: Passing) -> None:
        """Take a request; one that is for text is recorded."""
        if passing.path.endswith(PATHS):
            self._rows = self._rows or Rows(Anonymiser(), passing.exchange.sent_ns or 0)
            self._passing[id(passing.exchange)] = passing

    def holds(self, passing: Passing, size: int) -> bool:
        """Return whether to keep so many more bytes of a request; without room, forget it."""
        if id(passing.exchange) not in self._passing:
            return False
        passing.held_bytes += size
        self._held_bytes += size
        if self._held_bytes - self._released_bytes <= MOST_HELD_BYTES:
            return True
        del self._passing[id(passing.exchange)]
        passing.body, passing.exchange.reads = bytearray(), RecordedReads()
        self._held_bytes -= passing.held_bytes
        self.recorded.unheld += 1
        return False

    def ended(self, passing: Passing) -> None:
        """Take a request whose answer is complete, or will never be."""
        if id(passing.exchange) in self._passing:
            self._reading.begin(passing.exchange)

    def running(self) -> AbstractContextManager[None]:
        """Read answers in the running event loop inside the block."""
        return self._reading.running()

    def close(self) -> None:
        """Write what has ended and close the file."""
        self._reading.read_rest()
        self._thread.shutdown()
        self._file.close()

    def _read(self, exchange: Exchange, stream: TokenStream) -> None:
        passing = self._passing.pop(id(exchange))
        self._thread.submit(self._record, passing, stream, time.perf_counter_ns())

    def _record(self, passing: Passing, stream: TokenStream, now_ns: int) -> None:
        assert self._rows
        self._released_bytes += passing.held_bytes
        row, recorded = self._rows.of(passing, stream, now_ns), self.recorded
        recorded.requests += 1
        recorded.failed += row["status"] == "failed"
        recorded.prompt_tokens += row["prompt_tokens"]
        recorded.output_tokens += row["output_tokens"]
        try:
            self._write(row)
        except OSError as error:
            recorded.error = recorded.error or error.strerror or str(error)

    def _write(self, row: Mapping[str, Any]) -> None:
        data, before = json.dumps(row).encode() + b"\n", self._file.tell()
        if self._file.write(data) < len(data):
            self._file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _reader(exchange: Exchange) -> AnswerReader:
    kind = exchange.headers.get("content-type", "") if exchange.headers else ""
    is_whole = kind.startswith("application/json")
    return WholeAnswerReader(exchange, embedding=False) if is_whole else StreamReader(exchange)


@asynccontextmanager
async def recording(
    url: httpx.URL, path: Path, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[tuple[str, Recorded]]:
    """Pass requests on to the server at ``url`` and record them in ``path`` inside the block.

    Yield the URL of the tunnel, and what was recorded, which is complete after the block. Raises
    ``LoadTestError`` where ``port`` cannot be listened on, ``TraceError`` where ``path`` cannot be
    written.
    """
    upstream = Upstream(url, httpx.create_ssl_context() if url.scheme == "https" else None)
    listener = listening_socket(host, port, LoadTestError)
    recorder, live = Recorder(path), set[ClientSide]()
    server = await asyncio.get_running_loop().create_server(
        lambda: ClientSide(upstream, recorder, live), sock=listener, backlog=_BACKLOG
    )
    try:
        with recorder.running():
            yield url_of(listener), recorder.recorded
    finally:
        server.close()
        for tunnel in list(live):
            tunnel.close()
        for _ in range(2):  # until both ends of each tunnel have heard that they are closed
            await asyncio.sleep(0)
        recorder.close()


async def record(
    url: httpx.URL, path: Path, host: str, port: int, say_ready: Callable[[str], None]
) -> Recorded:
    """Do as ``recording`` until the first signal, and return what was recorded."""
    stop = asyncio.Event()
    async with recording(url, path, host, port) as (at, recorded):
        with stop_signals(stop.set):
            say_ready(at)
            await stop.wait()
    return recorded
