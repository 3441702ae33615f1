"""How a load is sent, and how far it has come."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from loadtest.plan.cancellation import Cancellation
from loadtest.stream.live_answers import LiveAnswer
from workloads.errors import LoadTestError
from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How the load is sent.

    ``timeout_s`` bounds a whole request, ``connect_timeout_s`` its connection. The clock starts
    ``lead_s`` after everything is ready and ``warm_connections`` are open. ``give_up_after``
    refused connections in a row end the test. ``processes`` share the load; None: as many as its
    peak rate asks for (``loadtest.run.worker_pool``). ``proxy`` and ``http2`` take httpx's own
    transport.

    ``closed_loop`` sends a follower after its parent's answer; None: where there are any.
    ``concurrency`` says that the trace is one of so many users (``loadtest.plan.users``), who go on
    also after a failure; with ``endless`` each begins again after its last request. Nothing is sent
    from ``duration_s`` on; ``drain_s`` after the last send whatever is in flight is given up.
    Requests due before ``warm_up_s`` are sent and left out of the summary. ``cancellation`` hangs
    up on a share of the requests, ``retries`` repeats refused ones (``loadtest.plan.retries``);
    both draw from streams of ``seed``.

    Raises ``LoadTestError`` for what cannot be.
    """

    timeout_s: float = 600.0
    connect_timeout_s: float = 10.0
    lead_s: float = 0.2
    warm_connections: int = 1
    give_up_after: int = 10
    progress_every_s: float = 1.0
    processes: int | None = None
    proxy: str | None = field(default=None, repr=False)
    http2: bool = False
    closed_loop: bool | None = None
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
        if self.duration_s is not None and not 0 < self.duration_s < inf:
            raise LoadTestError(f"duration {self.duration_s:g} s: must be above 0")
        if self.drain_s is not None and not 0 <= self.drain_s < inf:
            raise LoadTestError(f"drain {self.drain_s:g} s: must be 0 or more")
        if self.endless and (self.duration_s is None or self.concurrency is None):
            raise LoadTestError("only users can begin again and again, and they want a duration")
        if not 0 <= self.warm_up_s < (self.duration_s or inf):
            raise LoadTestError(
                f"warm-up {self.warm_up_s:g} s: must be 0 or more, and end before the duration does"
            )
        if self.retries < 0 or self.seed < 0:
            raise LoadTestError("retries and seed must be 0 or more")

    def follows(self, trace: Trace) -> bool:
        """Whether followers wait for their parent's answer."""
        if self.closed_loop is None:
            return any(r.parent_id is not None and r.delay_s is not None for r in trace)
        return self.closed_loop


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running load test stands; ``ended`` includes ``failed``.

    ``total`` grows while users begin again and again. ``answers`` are those read since the last
    report.
    """

    elapsed_s: float
    total: int
    sent: int
    ended: int
    failed: int
    answers: tuple[LiveAnswer, ...] = ()


OnProgress = Callable[[Progress], None]
