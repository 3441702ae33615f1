"""The HTTP process's end of the pipe: it sends requests and sorts events by request."""

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple

from engine.core.messages import (
    Abort,
    Add,
    Failed,
    Message,
    Refused,
    RequestFailed,
    Stop,
    TokenEvent,
    Update,
)
from engine.core.metrics import Metrics, RequestTiming
from engine.models.sampling_params import SamplingParams


class Ended(NamedTuple):
    """The end of a request without a last token, decided in the HTTP process."""

    why: Literal["disconnected", "core died", "shutting down"]
    message: str


Event = TokenEvent | Refused | RequestFailed | Ended


class CoreClient:
    """Sends requests to the core process and hands each event to the request that waits for it.

    A thread sends: while the core is inside a step it does not read the pipe, and a
    long prompt must not stop the event loop. All else belongs to the event loop's thread.
    """

    def __init__(self, connection: Connection, metrics: Metrics) -> None:
        self.metrics = metrics
        self.draining = False
        self.died = asyncio.Event()
        self.why_died = ""
        self._connection = connection
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="to-core")
        self._listening = True
        self._requests: dict[str, CoreRequest] = {}
        self.idle = asyncio.Event()
        """Set while no request is unfinished."""
        self.idle.set()
        self._ids = itertools.count(1)

    def attach(self) -> None:
        """Read the pipe on the running event loop."""
        asyncio.get_running_loop().add_reader(self._connection.fileno(), self._receive)

    def detach(self) -> None:
        """Stop reading the pipe."""
        asyncio.get_running_loop().remove_reader(self._connection.fileno())

    def stop(self) -> None:
        """Tell the core to end, after all that was sent before; to be called last."""
        self._send(Stop())
        self._listening = False
        self._sender.shutdown()

    def open(self, prefix: str, token_ids: list[int], params: SamplingParams) -> "CoreRequest":
        """Send a request to the core; to be used in a ``with`` block."""
        request = CoreRequest(self, f"{prefix}-{next(self._ids)}", len(token_ids))
        self._requests[request.request_id] = request
        self.idle.clear()
        self._send(Add(request.request_id, token_ids, params))
        return request

    def close(self, request: "CoreRequest") -> None:
        """Drop ``request``; abort it in the core if it has not ended."""
        del self._requests[request.request_id]
        if not self._requests:
            self.idle.set()
        if not request.over:
            self.metrics.aborted()
            self._send(Abort(request.request_id))

    def end_all(self, ended: Ended) -> None:
        """End every unfinished request with ``ended``."""
        for request in self._requests.values():
            request.put(ended)

    def _send(self, message: Message) -> None:
        if self._listening:
            self._sender.submit(self._connection.send, message)

    def _receive(self) -> None:
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            message = Failed("its process is gone")
        if isinstance(message, Failed):
            self._lose(message.message)
        elif isinstance(message, Update):
            self._dispatch(message)

    def _dispatch(self, update: Update) -> None:
        now_s = time.monotonic()
        for event in update.events:
            request = self._requests.get(event.request_id)
            if request is None:  # its client has gone away
                continue
            if isinstance(event, TokenEvent):
                self.metrics.token(request.timing, event, now_s)
            elif isinstance(event, RequestFailed):
                self.metrics.failed()
            request.put(event)
        self.metrics.core(update.stats)

    def _lose(self, why: str) -> None:
        self.detach()
        self._listening = False
        self.why_died = f"the engine core has died: {why}"
        self.died.set()
        self.end_all(Ended("core died", self.why_died))


class CoreRequest:
    """One request on its way; leaving the ``with`` block cancels it unless it is over."""

    def __init__(self, client: CoreClient, request_id: str, prompt_tokens: int) -> None:
        self.request_id = request_id
        self.timing = RequestTiming(prompt_tokens)
        self.over = False
        """Whether the core has said its last word."""
        self._client = client
        self._events: list[Event] = []
        self._arrived = asyncio.Event()

    def __enter__(self) -> "CoreRequest":
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close(self)

    def put(self, event: Event) -> None:
        """Add an event to the mailbox."""
        last_token = isinstance(event, TokenEvent) and event.finish_reason
        if last_token or isinstance(event, Refused | RequestFailed):
            self.over = True
        self._events.append(event)
        self._arrived.set()

    async def take(self) -> list[Event]:
        """Return all events that have arrived; wait for the first."""
        await self._arrived.wait()
        self._arrived.clear()
        events, self._events = self._events, []
        return events
