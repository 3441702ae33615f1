"""Parse bodies: small ones at once, long texts in a thread, large ones in a few processes.

A body of some megabytes keeps an interpreter busy for up to two seconds, whatever thread it is
parsed in. What comes back is small: a prompt that fits the model, or an error.
"""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from servetwin.engine.child import start_child
from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.body_reader import LARGE_BODY_BYTES
from servetwin.engine.http.protocol import (
    GenerationBody,
    GenerationRequest,
    ModelLimits,
    read_request,
)

_NICENESS = 5
"""So that parsing gives way to the event loop and the core."""
SMALL_BODY_BYTES = 4096
"""Larger bodies are read in a thread where the tokenizer is slow."""
PARSE_LIMIT_S = 20.0
"""After so long the process is ended and the body refused."""
PARSERS = 2
HUGE_BODY_BYTES = 1 << 20
"""Larger bodies leave one of the processes to the others."""


class BodyParser:
    """Turns bodies into requests. Its processes start when large bodies need them."""

    def __init__(self) -> None:
        self._processes = [_ParserProcess() for _ in range(PARSERS)]
        self._free = list(self._processes)
        self._callers = ThreadPoolExecutor(PARSERS, thread_name_prefix="to-parser")
        self._huge_bodies = asyncio.Semaphore(PARSERS - 1)

    @property
    def process_ids(self) -> list[int]:
        """The processes that parse large bodies now."""
        return [process.process_id for process in self._processes if process.process_id]

    async def parse(
        self, kind: type[GenerationBody], raw: bytearray, limits: ModelLimits
    ) -> GenerationRequest:
        """Return what a body asks for. Raises ``ApiError`` (400, 404) for what is wrong with it."""
        if len(raw) <= (SMALL_BODY_BYTES if limits.tokenizer.is_slow else LARGE_BODY_BYTES):
            return read_request(kind, raw, limits)
        if len(raw) <= LARGE_BODY_BYTES:
            return await asyncio.to_thread(read_request, kind, raw, limits)
        loop = asyncio.get_running_loop()
        async with self._huge_bodies if len(raw) > HUGE_BODY_BYTES else nullcontext():
            answer = await loop.run_in_executor(self._callers, self._call, kind, raw, limits)
        if isinstance(answer, GenerationRequest):
            return answer
        raise ApiError(*answer)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
        self._callers.shutdown()
        for process in self._processes:
            process.end()

    def _call(
        self, kind: type[GenerationBody], raw: bytearray, limits: ModelLimits
    ) -> "GenerationRequest | _ErrorFields":
        """Let a process parse; runs in one of as many threads as there are processes."""
        process = self._free.pop()
        try:
            return process.parse(kind, raw, limits)
        finally:
            self._free.append(process)


class _ParserProcess:
    """One process, which starts with its first body; only one thread may talk to it."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None

    @property
    def process_id(self) -> int | None:
        """Its number; None where it does not run."""
        return self._process.pid if self._process else None

    def parse(
        self, kind: type[GenerationBody], raw: bytearray, limits: ModelLimits
    ) -> "GenerationRequest | _ErrorFields":
        """Return what a body asks for, or what is wrong with it."""
        if self._process is None:
            self._process, self._connection = start_child(_serve, name="servetwin-parser")
        assert self._connection is not None
        try:
            self._connection.send((kind, limits))
            self._connection.send_bytes(raw)
            if self._connection.poll(PARSE_LIMIT_S):
                answer: GenerationRequest | _ErrorFields = self._connection.recv()
                return answer
            reason = f"took more than {PARSE_LIMIT_S:g} s to parse"
        except (EOFError, OSError):
            reason = "could not be parsed: its process has died"
        self.end()
        return 400, f"the body {reason}", None, "invalid_json"

    def kill(self) -> None:
        """End it from any thread: the body that it parses fails."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """End it; the next body starts another."""
        if self._process is not None and self._connection is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
        self._process = self._connection = None


_ErrorFields = tuple[int, str, str | None, str | None]
"""Status, message, param and code of an ``ApiError``."""


def _serve(connection: Connection) -> None:
    """Parse what comes through the pipe until it closes."""
    os.nice(_NICENESS)
    while True:
        try:
            kind, limits = connection.recv()
            raw = connection.recv_bytes()
        except (EOFError, OSError):
            return  # the server has ended
        try:
            connection.send(read_request(kind, raw, limits))
        except ApiError as error:
            connection.send((error.status, error.message, error.param, error.code))
