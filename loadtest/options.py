"""The options of a load test: how requests are sent, and which are hung up or retried."""

import re
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from zlib import crc32

import numpy as np

from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.graphs.task_graph import form_a_loop
from servetwin.workloads.program.key_values import key_value
from servetwin.workloads.trace import Trace

_CANCEL_EXAMPLE = "write for example share=0.1,after=5tokens or share=0.1,after=200ms"
LOCAL = "local"
# Seconds of each unit that a time may be given in.
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class HangUp:
    """The moment at which a client leaves: after some tokens, or some time after it was sent."""

    after_tokens: int | None = None
    after_s: float | None = None

    def __str__(self) -> str:
        if self.after_tokens is not None:
            return f"after {self.after_tokens} tokens"
        return f"after {1e3 * (self.after_s or 0.0):g} ms"


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The ``share`` of the requests whose clients hang up, and when they do."""

    share: float
    hang_up: HangUp


class Draws(IntEnum):
    """What is drawn for a request; each has its own random streams."""

    CANCELLATION = 1
    BACKOFF = 2


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How the requests of a load test are sent.

    ``timeout_s`` limits a whole request, ``connect_timeout_s`` its connection. The clock starts
    ``lead_s`` after all workers are ready and ``warm_connections`` are open. Where no request gets
    a connection for ``give_up_after_s``, the test ends; None lets it go on. ``processes`` share the
    load; None takes as many as the peak rate needs (``loadtest.run.worker_pool``). ``proxy`` and
    ``http2`` use httpx's own transport.

    With ``closed_loop`` a follower is sent after the answers to its parents; None means: where the
    trace has followers. With ``fail_fast`` a request without an answer ends its task
    (``workloads.graphs``). ``concurrency`` is the number of users of the trace
    (``loadtest.plan.users``), who continue after a failure; with ``endless`` each of them starts
    over after their last request. Nothing is sent from ``duration_s`` on; requests that are still
    in flight ``drain_s`` after the last send are cancelled. Requests due before ``warm_up_s`` are
    sent and left out of the summary. ``cancellation`` hangs up on a share of the requests,
    ``retries`` repeats refused ones (``loadtest.run.retrying_client``); both draw from random
    streams of ``seed``.

    Raises ``LoadTestError`` for values that are impossible or contradict each other.
    """

    timeout_s: float = 600.0
    connect_timeout_s: float = 10.0
    lead_s: float = 0.2
    warm_connections: int = 1
    give_up_after_s: float | None = 10.0
    progress_every_s: float = 1.0
    processes: int | None = None
    workers: str = LOCAL
    proxy: str | None = field(default=None, repr=False)
    http2: bool = False
    closed_loop: bool | None = None
    fail_fast: bool = False
    concurrency: int | None = None
    endless: bool = False
    duration_s: float | None = None
    drain_s: float | None = None
    warm_up_s: float = 0.0
    cancellation: Cancellation | None = None
    retries: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise LoadTestError(f"processes {self.processes}: at least one must send the load")
        if not re.fullmatch(r"local|ray|ray=.+", self.workers):
            raise LoadTestError(f"--workers {self.workers!r}: local, ray or ray=HOST:PORT")
        if self.duration_s is not None and not 0 < self.duration_s < inf:
            raise LoadTestError(f"duration {self.duration_s:g} s: must be above 0")
        if self.drain_s is not None and not 0 <= self.drain_s < inf:
            raise LoadTestError(f"drain {self.drain_s:g} s: must be 0 or more")
        if not 0 <= self.warm_up_s < (self.duration_s or inf):
            limits = "must be 0 or more, and end before the duration does"
            raise LoadTestError(f"warm-up {self.warm_up_s:g} s: {limits}")
        if self.retries < 0 or self.seed < 0:
            raise LoadTestError("retries and seed must be 0 or more")

    @property
    def on_ray(self) -> bool:
        """Whether the processes run on a Ray cluster."""
        return self.workers != LOCAL

    @property
    def ray_address(self) -> str | None:
        """The address of the cluster; None for that of the environment."""
        return self.workers.partition("=")[2] or None

    def follows(self, trace: Trace) -> bool:
        """Return whether followers wait for the answers to their parents."""
        return form_a_loop(trace) if self.closed_loop is None else self.closed_loop

    def hang_up(self, request_id: str) -> HangUp | None:
        """Return when the client of this request leaves; None when it stays to the end."""
        cancelled = self.cancellation
        if cancelled is None:
            return None
        draw = self.random_stream(Draws.CANCELLATION, request_id).random()
        return cancelled.hang_up if draw < cancelled.share else None

    def random_stream(self, draws: Draws, request_id: str) -> np.random.Generator:
        """Return the random stream of one request for one purpose.

        It depends on ``seed``, the purpose and the id alone: neither the number of processes nor
        the order of the answers changes what a request draws.
        """
        key = (int(draws), crc32(request_id.encode()))
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))


def duration_s(text: str, *units: str) -> float | None:
    """Return the seconds of a time above 0 in one of these units; None for any other text."""
    match = re.fullmatch(rf"(\d+\.?\d*|\.\d+)\s*({'|'.join(units)})", text.strip(), re.ASCII)
    seconds = float(match[1]) * UNITS_S[match[2]] if match else 0.0
    return seconds if 0 < seconds < inf else None


def parse_cancellation(text: str) -> Cancellation:
    """Read a cancellation: ``share=0.1,after=5tokens`` or ``share=0.1,after=200ms``.

    Raises ``LoadTestError`` naming the part that cannot be read.
    """
    form = f"share=P or after=N; {_CANCEL_EXAMPLE}"
    pairs = (key_value(part, "--cancel", LoadTestError, form) for part in text.split(","))
    parts = dict(pairs)
    if unknown := next((name for name in parts if name not in ("share", "after")), None):
        part = f"{unknown}={parts[unknown]}"
        raise LoadTestError(f"--cancel {text!r}: unknown part {part!r}; {_CANCEL_EXAMPLE}")
    if len(parts) < 2:
        raise LoadTestError(f"--cancel {text!r}: needs share and after; {_CANCEL_EXAMPLE}")
    return Cancellation(_share(parts["share"]), _hang_up(parts["after"]))


def parse_give_up(text: str) -> float | None:
    """Read how long a load test goes on without a connection: ``10s``, ``500ms``, or ``never``.

    Returns seconds, None for never. Raises ``LoadTestError`` where it cannot be read.
    """
    if text.strip() == "never":
        return None
    seconds = duration_s(text, "ms", "s", "min")
    if seconds is None:
        raise LoadTestError(
            f"--give-up-after {text!r}: not a time above 0 with its unit (ms, s, min); "
            "write for example 10s, or never"
        )
    return seconds


def _share(text: str) -> float:
    if not re.fullmatch(r"\d*\.?\d+", text) or not 0 < float(text) <= 1:
        reason = f"{text!r} is not above 0 and at most 1"
        raise LoadTestError(f"--cancel: share {reason}; {_CANCEL_EXAMPLE}")
    return float(text)


def _hang_up(text: str) -> HangUp:
    if (match := re.fullmatch(r"(\d+)\s*tokens?", text)) and int(match[1]):
        return HangUp(after_tokens=int(match[1]))
    if after_s := duration_s(text, "ms", "s"):
        return HangUp(after_s=after_s)
    raise LoadTestError(f"--cancel: after {text!r}: not in tokens, ms or s; {_CANCEL_EXAMPLE}")
