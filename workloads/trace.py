"""A trace: requests in the order of their arrival, and where they came from."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from servetwin.workloads.request import Request, with_columns

if TYPE_CHECKING:
    from servetwin.workloads.graphs.lane_rules import LaneRules


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests sorted by arrival (ties keep file order), with the name and notes of their source.

    ``clock_s`` is the resolution of the source's clock where it is coarse enough to make ties
    (Mooncake: 3 s). ``notes`` say what was done to the rows, for the reports. Without ``timed`` the
    source has no times: all requests arrive at 0. One that was ``stopped`` is the beginning of what
    the source has. With ``lanes`` these replay its tasks, and arrivals are only an order.
    """

    requests: tuple[Request, ...]
    source: str
    clock_s: float | None = None
    notes: tuple[str, ...] = field(default=())
    timed: bool = True
    stopped: bool = field(default=False, compare=False)
    lanes: "LaneRules | None" = None

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    @property
    def longest_tokens(self) -> int:
        """The longest context that a request reaches; 0 without requests."""
        return max((request.total_tokens for request in self.requests), default=0)

    @property
    def has_prefix_ids(self) -> bool:
        """Whether some request names the blocks of its prompt."""
        return any(request.prefix_block_ids for request in self.requests)

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival."""
        if not self.requests:
            return 0.0
        return self.requests[-1].arrival_s - self.requests[0].arrival_s

    @property
    def rate_per_s(self) -> float:
        """Mean arrival rate, (n - 1) / span; 0 where the span is 0, and of lanes, which wait."""
        has_rate = self.span_s > 0 and self.lanes is None
        return (len(self.requests) - 1) / self.span_s if has_rate else 0.0

    def replaced(self, requests: Iterable[Request], note: str) -> "Trace":
        """Return the trace with other requests and a note that gives the reason."""
        return replace(self, requests=tuple(requests), notes=(*self.notes, note))

    def changed(self, note: str, **columns: Iterable[Any]) -> "Trace":
        """Return the trace with other values of some fields, checked already, and a note."""
        return self.replaced(with_columns(self.requests, **columns), note)
