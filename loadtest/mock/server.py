"""The mock endpoint: an application of uvicorn, and the record of what was done.

Requests are stamped before they are parsed, and every write has its own time.

The time of a mock: a clock that freezes stop, and waits until absolute times.
"""

import asyncio
import socket
import time
from asyncio import Future
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from servetwin.loadtest.mock.faults import Freeze
from servetwin.loadtest.mock.mock_answer import MockAnswer, error, json_answer
from servetwin.loadtest.mock.parsed_request import BadRequest, PromptField, parse_request
from servetwin.loadtest.mock.plan import MockPlan
from servetwin.loadtest.mock.truth import Truth, TruthLog
from servetwin.loadtest.run.event_loop import run_fast, stop_signals
from servetwin.workloads.errors import MockError
from servetwin.workloads.program.listening import listening_socket, stop_accepting, url_of


class ServerClock:
    """Converts between ``time.perf_counter_ns`` and the server's own time, which freezes stop.

    Freezes count from ``start``; before it, both times are the same.
    """

    def __init__(self, freezes: Iterable[Freeze]) -> None:
        self._frozen_ns: list[tuple[int, int]] = []
        end_ns = 0
        for freeze in sorted(freezes, key=lambda freeze: freeze.at_s):
            start_ns = max(end_ns, round(freeze.at_s * 1e9))
            end_ns = max(start_ns, round((freeze.at_s + freeze.for_s) * 1e9))
            self._frozen_ns.append((start_ns, end_ns))
        self._zero_ns: int | None = None

    def start(self, now_ns: int) -> None:
        """Start the clock at the first request; later calls change nothing."""
        if self._zero_ns is None:
            self._zero_ns = now_ns

    def due_ns(self, arrival_ns: int, after_s: float) -> int:
        """Return when the server's own time is ``after_s`` later than it was at ``arrival_ns``."""
        after_ns = round(after_s * 1e9)
        if self._zero_ns is None:
            return arrival_ns + after_ns
        lived_ns = self._lived_ns(arrival_ns - self._zero_ns)
        return self._zero_ns + self._passed_ns(lived_ns + after_ns)

    def _lived_ns(self, passed_ns: int) -> int:
        begun = (span for span in self._frozen_ns if span[0] < passed_ns)
        return passed_ns - sum(min(passed_ns, end_ns) - start_ns for start_ns, end_ns in begun)

    def _passed_ns(self, lived_ns: int) -> int:
        for start_ns, end_ns in self._frozen_ns:
            if lived_ns >= start_ns:
                lived_ns += end_ns - start_ns
        return lived_ns


async def wait_until(due_ns: int, left: Future[Any]) -> bool:
    """Wait until ``time.perf_counter_ns`` is ``due_ns``, never less.

    Return early where the client has ``left``, and whether it is still there.
    """
    while not left.done() and (wait_ns := due_ns - time.perf_counter_ns()) > 0:
        await asyncio.wait([left], timeout=wait_ns / 1e9)
    return not left.done()


_KEEP_ALIVE_S = 3600
_BACKLOG = 1024
_STOP_S = 1.0
# The paths of requests for text, and the field that has their prompt.
_INPUTS: dict[str, PromptField] = {
    "/v1/completions": "prompt",
    "/v1/chat/completions": "messages",
    "/v1/embeddings": "input",
}


class StampingProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1, with the stamp of the first byte of a request in its state."""

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; the stamp is taken first."""
        self._now_ns = time.perf_counter_ns()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Called by the parser at the first byte of a request."""
        super().on_message_begin()
        self.scope["state"]["arrival_ns"] = self._now_ns


class MockServer:
    """Serves a plan in the running event loop, from ``start`` to ``stop``, at ``url``.

    ``text_requests`` counts the requests for text, good or bad.
    """

    def __init__(self, plan: MockPlan, truth: TruthLog) -> None:
        self._plan = plan
        self._clock = ServerClock(plan.freezes)
        self._refuses = plan.refuse_after == 0
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self.truth = truth
        self.text_requests = 0
        self.url = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen on ``port``, 0 for a free one. Raises ``MockError`` where that fails."""
        accepts = not self._refuses
        self._socket = listening_socket(host, port, MockError, accepts=accepts)
        self.url = url_of(self._socket)
        if accepts:
            config = uvicorn.Config(
                self.answer,
                interface="asgi3",
                proxy_headers=False,
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="critical",  # An answer that is cut is no error of a mock.
                access_log=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
            )
            self._server = await asyncio.get_running_loop().create_server(
                lambda: StampingProtocol(config, self._state, {}),
                sock=self._socket,
                backlog=_BACKLOG,
            )

    async def stop(self) -> None:
        """Close everything; answers in flight end as stopped in the truth."""
        self._refuse()
        self.truth.close()
        for _ in range(2):  # until connections that were accepted just now are known too
            await asyncio.sleep(0)
        for connection in list(self._state.connections):
            connection.transport.close()
        if self._socket:
            self._socket.close()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_STOP_S)

    def _refuse(self) -> None:
        """Accept no connection any more, and close those that are idle or become so."""
        self._refuses = True
        if self._server:
            stop_accepting(self._server)
        for connection in list(self._state.connections):
            connection.shutdown()

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request: the ASGI application."""
        arrival_ns = scope["state"]["arrival_ns"]
        if (body := await _body(receive)) is None:
            return
        answer, truth = self._reply(scope, body, arrival_ns)
        if self.text_requests == self._plan.refuse_after:
            self._refuse()
        left = asyncio.ensure_future(receive())
        try:
            outcome = await self._send(answer, truth, arrival_ns, send, left)
            if truth:
                self.truth.end(truth, outcome, time.perf_counter_ns())
            if outcome == "silent":
                await left
        finally:
            left.cancel()

    def _reply(self, scope: Any, body: bytes, arrival_ns: int) -> tuple[MockAnswer, Truth | None]:
        """Return the answer, with a truth where text was requested."""
        try:
            if scope["path"] in _INPUTS:
                return self._text(scope, body, arrival_ns)
            return self._fact(scope), None
        except BadRequest as bad:
            return json_answer(bad.status, error(str(bad), "invalid_request_error")), None

    def _fact(self, scope: Any) -> MockAnswer:
        path = scope["path"]
        known = {
            "/v1/models": {"object": "list", "data": self._plan.cards()},
            "/health": {"status": "ok"},
        }
        if path not in known:
            raise BadRequest(404, f"{path}: there is {', '.join([*known, *_INPUTS])}")
        if scope["method"] != "GET":
            raise BadRequest(405, f"{path} takes GET")
        return json_answer(200, known[path])

    def _text(self, scope: Any, body: bytes, arrival_ns: int) -> tuple[MockAnswer, Truth]:
        if scope["method"] != "POST":
            raise BadRequest(405, f"{scope['path']} takes POST")
        index, self.text_requests = self.text_requests, self.text_requests + 1
        parsed = parse_request(index, _INPUTS[scope["path"]], body, self._plan.models)
        self._clock.start(arrival_ns)
        truth = Truth(parsed.request_id, arrival_ns, parsed.max_tokens)
        self.truth.begin(truth)
        return self._plan.answer(parsed), truth

    async def _send(
        self, answer: MockAnswer, truth: Truth | None, arrival_ns: int, send: Any, left: Future[Any]
    ) -> str:
        """Send an answer, each write at its time, and return how it ended."""
        if answer.ending == "silent":
            return "silent"
        names = {**answer.headers, **({"Connection": "close"} if self._refuses else {})}
        headers = [(name.encode(), value.encode("latin-1")) for name, value in names.items()]
        if not await wait_until(self._clock.due_ns(arrival_ns, 0.0), left):
            return "left"
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        for at_s, data, tokens in answer.events:
            due_ns = self._clock.due_ns(arrival_ns, at_s)
            if not await wait_until(due_ns, left):
                return "left"
            written_ns = time.perf_counter_ns()
            await send({"type": "http.response.body", "body": data, "more_body": True})
            if truth and tokens:
                truth.wrote(tokens, due_ns, written_ns)
        if answer.ending == "cut":
            return "cut"  # Uvicorn closes the connection of an answer that is not complete.
        await send({"type": "http.response.body"})
        return "complete" if answer.status == 200 else f"status {answer.status}"


async def _body(receive: Any) -> bytes | None:
    """Return the body of a request; None where its client leaves before the end of it."""
    pieces, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message["body"])
        more = message["more_body"]
    return b"".join(pieces)


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
