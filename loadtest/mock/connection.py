"""One connection to the mock: it reads requests and writes their answers, one after the other."""

import asyncio
import time
from functools import partial

from loadtest.mock.http import CONTINUE, RequestReader, on_the_wire
from loadtest.mock.mock_answer import MockAnswer, TimedWrite
from loadtest.mock.parsed_request import BadRequest
from loadtest.mock.request_handler import Reply, RequestHandler, refusal
from loadtest.mock.truth import Truth


class MockConnection(asyncio.Protocol):
    """Reads requests and writes the answers of ``handler``.

    While it is open it is in ``connections``.
    """

    _transport: asyncio.Transport

    def __init__(self, handler: RequestHandler, connections: "set[MockConnection]") -> None:
        self._handler = handler
        self._connections = connections
        self._reader = RequestReader()
        self._arrival_ns = 0
        self._truth: Truth | None = None
        self.idle = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop; an answer in flight ends as left by its client."""
        self._connections.discard(self)
        if self._truth:
            self._handler.truth.end(self._truth, "left", time.perf_counter_ns())

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; the stamp is taken first."""
        now_ns = time.perf_counter_ns()
        if self._reader.empty:
            self._arrival_ns = now_ns
        self._reader.feed(data)
        if self.idle:
            self._read()

    def close(self) -> None:
        """Close once all that was written is sent."""
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
            reply = self._handler.reply(head, body, self._arrival_ns)
            self._answer(reply, keep_alive=head.keep_alive and not self._handler.refuses)
        elif (waiting := self._reader.head()) and waiting.expects_continue:
            self._transport.write(CONTINUE)

    def _answer(self, reply: Reply, *, keep_alive: bool) -> None:
        """Begin an answer: each write has its own time, and a late one makes no other late."""
        self.idle, self._truth = False, reply.truth
        self._writes = on_the_wire(reply.answer, keep_alive=keep_alive)
        self._due_ns = partial(self._handler.clock.due_ns, self._arrival_ns)
        self._at_end = partial(self._end, reply.answer, keep_alive)
        self._next()

    def _next(self) -> None:
        if (write := next(self._writes, None)) is None:
            self._at_end()
            return
        due_ns = self._due_ns(write.at_s)
        self._handler.timeline.at(due_ns, partial(self._write, write, due_ns))

    def _write(self, write: TimedWrite, due_ns: int) -> None:
        if self._transport.is_closing():
            return
        written_ns = time.perf_counter_ns()
        self._transport.write(write.data)
        if self._truth and write.tokens:
            self._truth.wrote(write.tokens, due_ns, written_ns)
        self._next()

    def _end(self, answer: MockAnswer, keep_alive: bool) -> None:
        now_ns = time.perf_counter_ns()
        if self._truth:
            self._handler.truth.end(self._truth, _outcome(answer), now_ns)
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
