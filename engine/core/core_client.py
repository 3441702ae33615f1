"""The HTTP process's view of the core: it sends requests and sorts events by request."""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

from servetwin.engine.core import messages
from servetwin.engine.core.core_process import StartedCore
from servetwin.engine.core.metrics import Metrics, RequestTiming
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.text.text_stream import OutputText, TokenTexts
from servetwin.engine.text.tokenizer import Tokenizer

# How long the core may take over its last step.
STOP_CORE_S = 10.0


class CoreLink:
    """Sends messages to a core process and hands on what it says.

    A thread sends: while the core is inside a step it does not read the pipe, and a long prompt
    must not stop the event loop. All else belongs to the event loop's thread.
    """

    def __init__(self, core: StartedCore) -> None:
        self.process, self._connection = core.process, core.connection
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="to-core")
        self._attached = False

    def attach(self, on_message: Callable[[Any], None]) -> None:
        """Read the pipe on the running event loop; the last message is a ``Failed``."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._connection.fileno(), self._receive, on_message)
        self._attached = True

    def detach(self) -> None:
        """Stop reading the pipe, and sending."""
        if self._attached:
            self._attached = False
            asyncio.get_running_loop().remove_reader(self._connection.fileno())

    def send(self, message: messages.Message) -> None:
        """Send a message soon, if anyone is there."""
        if self._attached:
            self._sender.submit(self._connection.send, message)

    def close(self, grace_s: float) -> None:
        """Let the process finish its step, end it by force if it takes longer, close the pipe."""
        self.send(messages.Stop())
        self.detach()
        try:
            self.process.join(grace_s)
        finally:
            self.process.kill()
            self.process.join()
            self._sender.shutdown()
            self._connection.close()

    def _receive(self, on_message: Callable[[Any], None]) -> None:
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            message = messages.Failed("its process is gone")
        if isinstance(message, messages.Failed):
            self.detach()
        on_message(message)


class Ended(NamedTuple):
    """The end of a request without a last token, decided in the HTTP process."""

    why: Literal["disconnected", "core died", "core stalled", "shutting down"]
    message: str


Event = messages.TokenEvent | messages.Refused | messages.RequestFailed | Ended

CoreState = Literal["starting", "ready", "stalled", "died"]


class CoreClient:
    """Sends requests to the core process and hands each event to the request that waits for it.

    Core processes come and go (``attach``): when one has died, all its requests are over.
    """

    def __init__(self, model: str, tokenizer: Tokenizer) -> None:
        self.metrics = Metrics(model)
        self.tokenizer = tokenizer
        self.token_texts = TokenTexts(tokenizer)
        self.state: CoreState = "starting"
        # What the core says about itself; of the last one while another starts.
        self.facts: Mapping[str, Any] = {}
        self.draining = False
        self.ready = asyncio.Event()
        self.died = asyncio.Event()
        self.why_died = ""
        # How many the core has sent: it grows while the core answers pings.
        self.messages = 0
        # Set while no request is unfinished.
        self.idle = asyncio.Event()
        self.idle.set()
        self._link: CoreLink | None = None
        self._requests: dict[str, CoreRequest] = {}
        self._ids = itertools.count(1)

    def attach(self, link: CoreLink) -> None:
        """Talk to a core that is starting, on the running event loop."""
        self._link = link
        self.expect()
        link.attach(self._receive)

    def expect(self) -> None:
        """Say that a core will come."""
        self.state = "starting"
        self.died.clear()

    def ping(self) -> None:
        """Ask the core for a sign of life."""
        if self._link is not None:
            self._link.send(messages.Ping())

    def set_stalled(self, why: str | None) -> None:
        """Say that the core does not move, and why, or that it does again.

        Requests that wait for a core that does not move get an error event.
        """
        if why and self.state == "ready":
            self.state, self.why_died = "stalled", why
            self.end_all(Ended("core stalled", why))
        elif not why and self.state == "stalled":
            self.state = "ready"

    def open(self, prefix: str, token_ids: list[int], params: SamplingParams) -> "CoreRequest":
        """Send a request to the core; to be used in a ``with`` block."""
        assert self._link is not None, "only a core that is ready takes requests"
        request = CoreRequest(self, f"{prefix}-{next(self._ids)}", len(token_ids), params)
        self._requests[request.request_id] = request
        self.idle.clear()
        self._link.send(messages.Add(request.request_id, token_ids, params))
        return request

    def close(self, request: "CoreRequest") -> None:
        """Drop ``request``; abort it in the core if it has not ended."""
        del self._requests[request.request_id]
        if not self._requests:
            self.idle.set()
        if not request.over:
            self.metrics.ended("abort")
            if self._link is not None:
                self._link.send(messages.Abort(request.request_id))

    def end_all(self, ended: Ended) -> None:
        """End every unfinished request with ``ended``."""
        for request in self._requests.values():
            request.put(ended)

    def _receive(self, message: Any) -> None:
        self.messages += 1
        match message:
            case messages.Update():
                self._dispatch(message)
            case messages.Ready(facts):
                self.facts, self.state, self.why_died = facts, "ready", ""
                self.metrics.core_started()
                self.ready.set()
            case messages.Failed(why):
                self._lose(why)

    def _dispatch(self, update: messages.Update) -> None:
        now_s = time.monotonic()
        for event in update.events:
            request = self._requests.get(event.request_id)
            if request is None:  # its client has gone away
                continue
            if isinstance(event, messages.TokenEvent):
                self.metrics.token(request.outputs[event.sample].timing, event, now_s)
            elif isinstance(event, messages.RequestFailed):
                self.metrics.ended("error")
            request.put(event)
        self.metrics.core(update.stats)

    def _lose(self, why: str) -> None:
        if self.state == "starting":
            gone = why == "its process is gone"
            self.why_died = "the engine core died while it was starting" if gone else why
        else:
            self.why_died = f"the engine core has died: {why}"
        self.state = "died"
        self.metrics.core_started()
        self.died.set()
        self.end_all(Ended("core died", self.why_died))


class CoreRequest:
    """One request on its way; leaving the ``with`` block cancels it unless it is over."""

    def __init__(
        self, client: CoreClient, request_id: str, prompt_tokens: int, params: SamplingParams
    ) -> None:
        self.request_id = request_id
        # Each sample; the first one counts the prompt.
        self.outputs = [
            CoreOutput(prompt_tokens if sample == 0 else 0, OutputText(client.tokenizer, params))
            for sample in range(params.n)
        ]
        self._client = client

    @property
    def over(self) -> bool:
        """Whether the core has ended it."""
        return all(output.over for output in self.outputs)

    def __enter__(self) -> "CoreRequest":
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close(self)

    def put(self, event: Event) -> None:
        """Add an event to the mailbox that it is for; all are for what is no token."""
        if isinstance(event, messages.TokenEvent):
            self.outputs[event.sample].put(event)
            return
        for output in self.outputs:
            output.put(event)


class CoreOutput:
    """The mailbox of one answer of a request."""

    def __init__(self, prompt_tokens: int, text: OutputText) -> None:
        self.timing = RequestTiming(prompt_tokens)
        # Whether the core has ended it.
        self.over = False
        self._text = text
        self._events: list[Event] = []
        self._arrived = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event to the mailbox, a token with its text."""
        if isinstance(event, messages.TokenEvent):
            is_last = event.finish_reason is not None
            event = event._replace(text=self._text.read(event.token_id, is_last))
            self.over |= is_last
        elif isinstance(event, messages.Refused | messages.RequestFailed):
            self.over = True
        self._events.append(event)
        self._arrived.set()

    async def take(self) -> list[Event]:
        """Return all events that have arrived; wait for the first."""
        await self._arrived.wait()
        self._arrived.clear()
        events, self._events = self._events, []
        return events
