"""The mock endpoint: what it answers, its connections, and the record of what was done."""

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from servetwin.loadtest.mock.clock import ServerClock, Timeline
from servetwin.loadtest.mock.http import CONTINUE, RequestHead, RequestReader, on_the_wire
from servetwin.loadtest.mock.mock_answer import MockAnswer, TimedWrite, error, json_answer
from servetwin.loadtest.mock.parsed_request import BadRequest, parse_embedding, parse_request
from servetwin.loadtest.mock.plan import MockPlan
from servetwin.loadtest.mock.truth import Truth, TruthLog
from servetwin.loadtest.run.event_loop import run_fast, stop_signals
from servetwin.workloads.errors import MockError
from servetwin.workloads.listening import listening_socket, stop_accepting, url_of

_BACKLOG = 1024


_CHAT = {"/v1/completions": False, "/v1/chat/completions": True}
_EMBEDDINGS = "/v1/embeddings"


class Reply(NamedTuple):
    """An answer, with a ``truth`` where text was requested."""

    answer: MockAnswer
    truth: Truth | None = None


class RequestHandler:
    """What all connections of a mock share: its plan, its times and its records.

    ``text_requests`` counts the requests for text, good or bad. Once the plan refuses connections,
    ``refuses`` is set and ``on_refuse`` called.
    """

    def __init__(self, plan: MockPlan, truth: TruthLog, timeline: Timeline) -> None:
        self._plan = plan
        self.truth = truth
        self.timeline = timeline
        self.clock = ServerClock(plan.freezes)
        self.text_requests = 0
        self.refuses = plan.refuse_after == 0
        self.on_refuse: Callable[[], None] = lambda: None

    def reply(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        """Return the answer to a request that came at ``arrival_ns``."""
        reply = self._reply(head, body, arrival_ns)
        if reply.truth:
            self.clock.start(arrival_ns)
            self.truth.begin(reply.truth)
        if self.text_requests == self._plan.refuse_after:
            self.refuses = True
            self.on_refuse()
        return reply

    def _reply(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        try:
            if head.path in (*_CHAT, _EMBEDDINGS):
                return self._text(head, body, arrival_ns)
            return Reply(self._fact(head))
        except BadRequest as bad:
            return refusal(bad)

    def _fact(self, head: RequestHead) -> MockAnswer:
        known = {
            "/v1/models": {"object": "list", "data": self._plan.cards()},
            "/health": {"status": "ok"},
        }
        if head.path not in known:
            raise BadRequest(
                404, f"{head.path}: there is {', '.join([*known, *_CHAT, _EMBEDDINGS])}"
            )
        if head.method != "GET":
            raise BadRequest(405, f"{head.path} takes GET")
        return json_answer(200, known[head.path])

    def _text(self, head: RequestHead, body: bytes, arrival_ns: int) -> Reply:
        if head.method != "POST":
            raise BadRequest(405, f"{head.path} takes POST")
        index, self.text_requests = self.text_requests, self.text_requests + 1
        if head.path == _EMBEDDINGS:
            parsed = parse_embedding(index, body, self._plan.models)
            answer = self._plan.embedding(parsed)
        else:
            parsed = parse_request(index, _CHAT[head.path], body, self._plan.models)
            answer = self._plan.answer(parsed)
        return Reply(answer, Truth(parsed.request_id, arrival_ns, parsed.max_tokens))


def refusal(bad: BadRequest) -> Reply:
    """Return the answer to a request that cannot be served."""
    return Reply(json_answer(bad.status, error(str(bad), "invalid_request_error")))


class MockConnection(asyncio.Protocol):
    """One connection: it reads requests and writes the answers of ``handler``, one after the other.

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
        self._transport = cast(asyncio.Transport, transport)  # That of uvloop is no subclass.
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


class MockServer:
    """Serves a plan in the running event loop, from ``start`` to ``stop``, at ``url``."""

    def __init__(self, plan: MockPlan, truth: TruthLog) -> None:
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._connections: set[MockConnection] = set()
        self.truth = truth
        self._timeline = Timeline(asyncio.get_running_loop())
        self._handler = RequestHandler(plan, self.truth, self._timeline)
        self._handler.on_refuse = self._refuse
        self.url = ""

    @property
    def text_requests(self) -> int:
        """The number of requests for text so far."""
        return self._handler.text_requests

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen on ``port``, 0 for a free one. Raises ``MockError`` where that fails."""
        accepts = not self._handler.refuses
        self._socket = listening_socket(host, port, MockError, accepts=accepts)
        self.url = url_of(self._socket)
        if accepts:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: MockConnection(self._handler, self._connections),
                sock=self._socket,
                backlog=_BACKLOG,
            )

    async def stop(self) -> None:
        """Close everything; answers in flight end as stopped in the truth."""
        self._timeline.clear()
        self._handler.refuses = True
        self._refuse()
        self.truth.close()
        for _ in range(2):  # until connections that were accepted just now are known too
            await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.close()
        if self._socket:
            self._socket.close()
        await asyncio.sleep(0)

    def _refuse(self) -> None:
        if self._server:
            stop_accepting(self._server)
        for connection in list(self._connections):
            if connection.idle:
                connection.close()


def serve_mock(
    plan: MockPlan, host: str, port: int, truth: Path | None, on_ready: Callable[[str], None]
) -> int:
    """Serve until SIGINT or SIGTERM and return the number of requests for text.

    ``on_ready`` is called with the URL, ``truth`` is a file that gets a line per request. For the
    main thread only. Raises ``MockError`` where it cannot listen or write there.
    """

    async def serve() -> int:
        stopped = asyncio.Event()
        server = MockServer(plan, TruthLog(truth))
        await server.start(host, port)
        with stop_signals(stopped.set):
            on_ready(server.url)
            await stopped.wait()
        await server.stop()
        return server.text_requests

    return run_fast(serve())
