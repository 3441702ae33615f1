"""The loop around the core: requests in, a step, events out, or sleep.

Law: given the arrival times and decision times that this loop records, a simulator of the same
policies makes the same decisions. So a request arrives, for the policies, at the time of the turn
that hands it over, which is also the time at which the scheduler decides.
"""

from collections.abc import Callable
from typing import Protocol

from servetwin.engine.core.core import EngineCore
from servetwin.engine.core.messages import (
    Abort,
    Add,
    CoreStats,
    Message,
    Refused,
    RequestFailed,
    Stop,
    TokenEvent,
    Update,
    one_line,
)  # fmt: skip


class Inbox(Protocol):
    """Where the loop's messages come from."""

    def drain(self) -> list[Message]:
        """Return all messages that have arrived, without waiting."""

    def wait(self, seconds: float | None) -> None:
        """Wait until a message arrives, at most ``timeout_s`` seconds (None: without limit)."""


class CoreLoop:
    """Turns of a core: ``run`` until a ``Stop`` comes. ``send`` gets what each turn has to tell."""

    def __init__(self, core: EngineCore, inbox: Inbox, send: Callable[[Update], None]) -> None:
        self._core = core
        self._inbox = inbox
        self._send = send
        self._told: CoreStats | None = None
        self._stopped = False

    def run(self) -> None:
        """Serve until a ``Stop`` message; an exception of no single request goes to the caller."""
        while True:
            ran = self._turn()
            if self._core.log and not ran:
                self._core.log.flush()
            if self._stopped:
                return
            if not ran:
                wake_s = self._core.scheduler.wake_s()
                self._inbox.wait(None if wake_s is None else max(0.0, wake_s - self._core.clock()))

    def _turn(self) -> bool:
        """Hand over what has come, run one step, tell; whether there was a step to run."""
        messages = self._inbox.drain()
        now_s = self._core.clock()
        refused = self._hand_over(messages, now_s)
        if self._stopped:
            return False
        tokens = self._core.step(now_s)
        self._tell([*refused, *self._core.refusals(), *(tokens or ())])
        return tokens is not None

    def _hand_over(self, messages: list[Message], now_s: float) -> list[Refused | RequestFailed]:
        refused: list[Refused | RequestFailed] = []
        for message in messages:
            match message:
                case Add():
                    refused += self._add(message, now_s)
                case Abort(request_id):
                    self._core.abort(request_id)
                case Stop():
                    self._stopped = True
        return refused

    def _add(self, add: Add, now_s: float) -> list[Refused | RequestFailed]:
        """Hand a request to the core; return why it did not get in."""
        try:
            refusal = self._core.add(*add, now_s)
        except Exception as error:
            return [RequestFailed(add.request_id, one_line(error))]
        return [Refused(add.request_id, refusal.kind, refusal.reason)] if refusal else []

    def _tell(self, events: list[TokenEvent | Refused | RequestFailed]) -> None:
        stats = self._core.stats()
        if events or stats != self._told:
            self._told = stats
            self._send(Update(events, stats))
