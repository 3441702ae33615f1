"""One connection to the mock: requests come in, one after the other is answered."""

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from loadtest.mock.http import CONTINUE, RequestReader, on_the_wire
from loadtest.mock.mock_answer import MockAnswer
from loadtest.mock.parsed_request import BadRequest
from loadtest.mock.request_handler import Reply, refusal
from loadtest.mock.truth import Truth
from loadtest.mock.writing import Writing

if TYPE_CHECKING:
    from loadtest.mock.server import MockServer


class MockConnection(asyncio.Protocol):
    """Reads requests and writes answers for a ``MockServer``."""

    _transport: asyncio.Transport

    def __init__(self, server: "MockServer") -> None:
        self._server = server
        self._reader = RequestReader()
        self._arrival_ns = 0
        self._truth: Truth | None = None
        self.idle = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone, or we closed."""
        self._server.connections.discard(self)
        if self._truth:
            self._server.truth.end(self._truth, "left", time.perf_counter_ns())

    def data_received(self, data: bytes) -> None:
        """Stamp, then read."""
        now_ns = time.perf_counter_ns()
        if self._reader.empty:
            self._arrival_ns = now_ns
        self._reader.feed(data)
        if self.idle:
            self._read()

    def close(self) -> None:
        """Close once what was written is out."""
        self._transport.close()

    def _read(self) -> None:
        try:
            request = self._reader.take()
        except BadRequest as bad:
            self._answer(refusal(bad), keep_alive=False)
            return
        if request:
            self.idle = False
            head, body = request
            reply = self._server.reply(head, body, self._arrival_ns)
            self._answer(reply, keep_alive=head.keep_alive and not self._server.refuses)
        elif (waiting := self._reader.head()) and waiting.expects_continue:
            self._transport.write(CONTINUE)

    def _answer(self, reply: Reply, *, keep_alive: bool) -> None:
        self.idle, self._truth = False, reply.truth
        Writing(
            on_the_wire(reply.answer, keep_alive=keep_alive),
            self._transport,
            self._server.timeline,
            partial(self._server.clock.due_ns, self._arrival_ns),
            reply.truth,
            partial(self._end, reply.answer, keep_alive),
        )

    def _end(self, answer: MockAnswer, keep_alive: bool) -> None:
        now_ns = time.perf_counter_ns()
        if self._truth:
            self._server.truth.end(self._truth, _outcome(answer), now_ns)
        if answer.ending == "silent":
            return
        if answer.ending == "cut" or not keep_alive:
            self.close()
            return
        self.idle, self._truth, self._arrival_ns = True, None, now_ns
        self._read()


def _outcome(answer: MockAnswer) -> str:
    if answer.status != 200:
        return f"status {answer.status}"
    return {"clean": "complete"}.get(answer.ending, answer.ending)
