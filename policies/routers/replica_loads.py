"""The settings of a router, and the loads of the replicas that it reads."""

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from math import inf, isfinite, nextafter
from operator import itemgetter

from servetwin.policies.config import require
from servetwin.policies.protocols import Load
from servetwin.policies.registry import ROUTERS
from servetwin.workloads.native_class import mypyc_attr
from servetwin.workloads.request import Request

# (time in seconds, place, requests, tokens).
_Change = tuple[float, int, int, int]


@mypyc_attr(native_class=False)
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
        object.__setattr__(self, "router", ROUTERS.name_of(self.router))
        require(0 <= self.staleness_s < inf, "staleness_s", self.staleness_s, "finite, at least 0")
        require(0 <= self.prefix_share <= 1, "prefix_share", self.prefix_share, "from 0 to 1")
        for name in ("imbalance_requests", "imbalance_ratio", "remembered_blocks"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")


class ReplicaLoads:
    """The load of each replica: requests sent and not ended, and their tokens.

    The cluster calls ``sent`` and ``ended``; a router reads ``requests``, ``tokens`` and
    ``queues``, which are those of the last report. ``read_load`` reads the load of a replica,
    ``read_hits`` the tokens of a prompt that each prefix cache holds.
    ``speeds`` compares the replicas' hardware. ``before_report`` is called where all must be known
    that has ended until now: in between,
    replicas may be simulated as late as they are needed.
    """

    def __init__(self, speeds: Listed[float], staleness_s: float = 0.0) -> None:
        for speed in speeds:
            require(isfinite(speed) and speed > 0, "speed", speed, "a number above 0")
        self.speeds = tuple(speeds)
        self.before_report: Callable[[], None] | None = None
        self.read_load: Callable[[int], Load] | None = None
        self.read_hits: Callable[[Request], list[int]] | None = None
        self._staleness_s = staleness_s
        self._requests, self._tokens = [0] * len(speeds), [0] * len(speeds)
        self._queues: list[tuple[int, int]] = []
        self._report_s = staleness_s
        self._unreported: list[_Change] = []
        self._readers: list[set[int]] = []

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self.speeds)

    def requests(self, now_s: float) -> Listed[int]:
        """Return the requests in each replica, waiting and running, as last reported."""
        self._look(now_s)
        return self._requests

    def tokens(self, now_s: float) -> Listed[int]:
        """Return the prompt and declared output tokens of these requests."""
        self._look(now_s)
        return self._tokens

    def queues(self, now_s: float) -> Listed[tuple[int, int]]:
        """Return (running, waiting) of each replica.

        They are read at the first look after a report is due; what was sent since then waits.
        """
        is_due = now_s >= self._report_s or not self._queues
        self._look(now_s)
        if is_due and self.read_load is not None:
            loads = map(self.read_load, range(len(self.speeds)))
            self._queues = [(running, waiting) for running, waiting, _ in loads]
        return self._queues or [(0, 0)] * len(self.speeds)

    def hits(self, request: Request) -> list[int]:
        """Return the tokens of a prompt in each cache now; an empty list: in none."""
        if self.before_report is not None:
            self.before_report()
        return [] if self.read_hits is None else self.read_hits(request)

    def moved(self, places: Listed[int], speeds: Listed[float]) -> "ReplicaLoads":
        """Return the loads of replicas with these speeds, as of now; who was not here is idle.

        ``places`` are those of the replicas here, -1 of one that is not there.
        """
        for _, place, requests, tokens in self._unreported:
            self._change(place, requests, tokens)
        loads = ReplicaLoads(speeds, self._staleness_s)
        loads.read_load, loads.read_hits = self.read_load, self.read_hits
        loads._report_s = self._report_s
        for before, place in enumerate(places):
            if place >= 0:
                loads._change(place, self._requests[before], self._tokens[before])
        return loads

    def changed_places(self) -> set[int]:
        """Return a set that gets the place of each reported change; its reader empties it."""
        changed: set[int] = set()
        self._readers.append(changed)
        return changed

    def sent(self, place: int, tokens: int, now_s: float) -> None:
        """Record that a request of ``tokens`` tokens went to the replica at ``place``."""
        if self._staleness_s:
            self._look(now_s)
            self._unreported.append((now_s, place, 1, tokens))
            if self._queues:
                running, waiting = self._queues[place]
                self._queues[place] = running, waiting + 1
        else:
            self._change(place, 1, tokens)

    def ended(self, place: int, tokens: int, now_s: float) -> None:
        """Record that such a request was answered, or given up; in any order of replicas."""
        if self._staleness_s:
            self._unreported.append((now_s, place, -1, -tokens))
        else:
            self._change(place, -1, -tokens)

    def _change(self, place: int, requests: int, tokens: int) -> None:
        self._requests[place] += requests
        self._tokens[place] += tokens
        for changed in self._readers:
            changed.add(place)

    def _look(self, now_s: float) -> None:
        if now_s >= self._report_s:
            if self.before_report is not None:
                self.before_report()
            if self._staleness_s:
                self._report(now_s)

    def _report(self, now_s: float) -> None:
        """Take all reports that are due; each has what changed before its moment."""
        changes = sorted(self._unreported, key=itemgetter(0))
        reported = 0
        for number, (changed_s, _, _, _) in enumerate(changes):
            if changed_s >= self._report_s:
                reported = number
                self._await_report(changed_s)
        if now_s >= self._report_s:
            reported = len(changes)
            self._await_report(now_s)
        for _, place, requests, tokens in changes[:reported]:
            self._change(place, requests, tokens)
        self._unreported = changes[reported:]

    def _await_report(self, now_s: float) -> None:
        due_s = (now_s // self._staleness_s + 1) * self._staleness_s
        self._report_s = max(due_s, nextafter(now_s, inf))
