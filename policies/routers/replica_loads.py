"""The settings of a router, and the loads of the replicas that it reads."""

from collections.abc import Sequence as Listed
from dataclasses import dataclass
from math import inf, isfinite, nextafter

from policies.config import require


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Which router stands before the replicas, and its settings.

    ``router`` is a registered name (``policies.registry.ROUTERS``) or ``path.py:Class``. The
    loads that it reads are reports of every replica at each multiple of ``staleness_s``; at 0
    they are always true.

    Prefix affinity: a prompt follows its prefix where the known part is more than
    ``prefix_share`` of it, unless the loads are out of balance: more than ``imbalance_requests``
    apart, and the highest more than ``imbalance_ratio`` times the lowest. It remembers the last
    ``remembered_blocks`` blocks of prompts. The defaults are those of SGLang's router (0.3, 64,
    1.5).
    """

    router: str = "round-robin"
    staleness_s: float = 0.0
    prefix_share: float = 0.3
    imbalance_requests: int = 64
    imbalance_ratio: float = 1.5
    remembered_blocks: int = 1 << 20

    def __post_init__(self) -> None:
        require(0 <= self.staleness_s < inf, "staleness_s", self.staleness_s, "finite, at least 0")
        require(0 <= self.prefix_share <= 1, "prefix_share", self.prefix_share, "from 0 to 1")
        for name in ("imbalance_requests", "imbalance_ratio", "remembered_blocks"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")


class ReplicaLoads:
    """The load of each replica: requests sent and not ended, and their tokens.

    The cluster calls ``sent`` and ``ended``; a router reads ``requests`` and
    ``tokens``, which are those of the last report. ``speeds`` compares the replicas' hardware.
    """

    def __init__(self, speeds: Listed[float], staleness_s: float = 0.0) -> None:
        for speed in speeds:
            require(isfinite(speed) and speed > 0, "speed", speed, "a number above 0")
        self.speeds = tuple(speeds)
        self._staleness_s = staleness_s
        self._requests, self._tokens = [0] * len(speeds), [0] * len(speeds)
        self._reported_requests, self._reported_tokens = self._requests, self._tokens
        self._report_s = inf
        if staleness_s:
            self._report(0.0)

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self.speeds)

    def requests(self, now_s: float) -> Listed[int]:
        """Return the requests in each replica, waiting and running, as last reported."""
        if now_s >= self._report_s:
            self._report(now_s)
        return self._reported_requests

    def tokens(self, now_s: float) -> Listed[int]:
        """Return the prompt and declared output tokens of these requests."""
        if now_s >= self._report_s:
            self._report(now_s)
        return self._reported_tokens

    def sent(self, place: int, tokens: int, now_s: float) -> None:
        """Record that a request of ``tokens`` tokens went to the replica at ``place``."""
        self._add(place, 1, tokens, now_s)

    def ended(self, place: int, tokens: int, now_s: float) -> None:
        """Record that such a request was answered, or given up."""
        self._add(place, -1, -tokens, now_s)

    def _add(self, place: int, requests: int, tokens: int, now_s: float) -> None:
        if now_s >= self._report_s:
            self._report(now_s)
        self._requests[place] += requests
        self._tokens[place] += tokens

    def _report(self, now_s: float) -> None:
        """Take the report that is due; nothing has changed since its moment."""
        self._reported_requests, self._reported_tokens = self._requests.copy(), self._tokens.copy()
        due_s = (now_s // self._staleness_s + 1) * self._staleness_s
        self._report_s = max(due_s, nextafter(now_s, inf))


class LeastLoaded:
    """The least load for the speed, the new request included; equal replicas take turns."""

    def __init__(self, loads: ReplicaLoads) -> None:
        self._speeds = loads.speeds
        self._next = 0

    def choose(self, loads: Listed[int], own: int) -> int:
        """Return the place whose load plus ``own``, divided by its speed, is least."""
        count = len(loads)
        costs = [(load + own) / speed for load, speed in zip(loads, self._speeds, strict=True)]
        turn = range(self._next, self._next + count)
        place = min(turn, key=lambda place: costs[place % count]) % count
        self._next = place + 1
        return place
