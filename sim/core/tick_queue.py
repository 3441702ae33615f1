"""Items on their way through a simulation, each delivered at its tick."""

from collections.abc import Callable
from heapq import heappop, heappush

from simpy.events import Event

from servetwin.sim.core.environment import NEVER, Alarm, Environment

Delivery = Callable[[], None]


class TickQueue:
    """A queue that makes deliveries at their tick, before any server decides; ties go by rank.

    What a server causes must be posted for a later tick than its own (``soon``). Then all
    deliveries of a tick are known before the first, and the order in which servers that end a step
    at the same tick are simulated does not matter: runs of steps end as single steps do.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._due: list[tuple[int, int, Delivery]] = []  # heap
        self._alarm = Alarm(env, self._ring, urgent=True)
        self._alarm_tick = NEVER

    def __len__(self) -> int:
        """Return the number of items on their way."""
        return len(self._due)

    def soon(self, tick: int) -> int:
        """Return ``tick``, or the next tick if that is not later than now."""
        return max(tick, self._env.tick + 1)

    def post(self, tick: int, rank: int, delivery: Delivery) -> None:
        """Deliver at ``tick`` (now, if that is past); deliveries of a tick differ in rank."""
        tick = max(tick, self._env.tick)
        heappush(self._due, (tick, rank, delivery))
        if tick < self._alarm_tick:
            self._set_alarm(tick)

    def _set_alarm(self, tick: int) -> None:
        """Ring at ``tick``; an alarm that has not rung yet is replaced."""
        if not self._alarm.processed:
            self._alarm = Alarm(self._env, self._ring, urgent=True)
        self._alarm_tick = tick
        self._alarm.set(tick)

    def _ring(self, event: Event) -> None:
        if event is not self._alarm:
            return
        now, due = self._alarm_tick, self._due
        self._env.tick = now
        while due and due[0][0] <= now:
            heappop(due)[2]()
        self._alarm_tick = NEVER
        if due:
            self._set_alarm(due[0][0])
