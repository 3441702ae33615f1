"""How a load is sent, and how far it has come."""

from collections.abc import Callable
from dataclasses import dataclass, field

from workloads.errors import LoadTestError


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How the load is sent.

    ``timeout_s`` bounds a whole request, ``connect_timeout_s`` its connection. The clock starts
    ``lead_s`` after everything is ready and ``warm_connections`` are open. ``give_up_after``
    refused connections in a row end the test. ``processes`` share the load; None: as many as its
    peak rate asks for (``loadtest.shards``). ``proxy`` and ``http2`` take httpx's own transport.
    Raises ``LoadTestError`` for less than one process.
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

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise LoadTestError(f"processes {self.processes}: at least one must send the load")


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running load test stands; ``ended`` includes ``failed``."""

    elapsed_s: float
    total: int
    sent: int
    ended: int
    failed: int


OnProgress = Callable[[Progress], None]
