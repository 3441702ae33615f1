"""Ranks that step together: attention data parallel whose experts are shared.

Each rank has a scheduler, a queue and KV memory of its own. As every layer waits for the tokens of
all ranks, a step begins on all of them at once and ends with the slowest; a rank without work
computes a dummy row while another has any (vLLM's data parallel ranks, and SGLang's DP attention).
"""

from collections.abc import Sequence as Listed

from simpy.events import Event

from servetwin.policies.batch import Batch
from servetwin.policies.protocols import Refusal
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.environment import NEVER, Alarm
from servetwin.sim.core.replica import Replica
from servetwin.sim.core.run_clock import GroupClock
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK


class Rank(Replica):
    """One rank of a ``LockstepGroup``, which decides when it steps."""

    group: "LockstepGroup | None" = None

    def catch_up(self, tick: int) -> None:
        """Simulate the group until ``tick``."""
        assert self.group is not None
        self.group.catch_up(tick)

    def submit_at(self, seq: Sequence, now: int) -> Refusal | None:
        """Submit at ``now``; the next step of the group may begin earlier for it."""
        assert self.group is not None
        refusal = self.enter(seq)
        if refusal is None:
            changes = self._plan is None or self.scheduler.changes_batch(seq)
            self.group.has_arrival(now, changes)
        return refusal

    def decide(self, now: int) -> Batch | None:
        """Return the batch of the step that begins at ``now``; without one ``due`` says until when.

        Raises ``Stalled`` where it cannot ever have one.
        """
        batch = self._schedule(now * SECONDS_PER_TICK)
        if batch is None:
            self._plan = None
            self._sleep(now)
        return batch

    def begin(self, batch: Batch, now: int, duration: int) -> None:
        """Begin a run of steps that the group has timed."""
        totals = batch.totals() if batch.chunks else None
        plan = (batch, totals, now, now * SECONDS_PER_TICK, self.scheduler.load())
        self._plan = plan
        if self._keeps_more:
            self._note(plan, duration)

    def end(self, steps: int, now: int) -> None:
        """End ``steps`` steps at ``now``, if it had any work."""
        self._wakes_in_vain = 0  # time has passed
        if self._plan is not None:
            self._end(self._plan, steps, now * SECONDS_PER_TICK)

    def _decide_at(self, tick: int) -> None:
        self.due = tick


class LockstepGroup:
    """The ranks of one server; the noise of the first rank is that of all steps."""

    def __init__(self, ranks: Listed[Rank]) -> None:
        first = ranks[0]
        self._ranks = ranks
        self._macro = first.macro
        self._clock = GroupClock(first.step_time, first.noise)
        # When the run began, NEVER where none runs, and when the next decision is due.
        self._started = self._due = NEVER
        self._steps = self._steps_done = 0
        self._alarm = Alarm(first.env, self._on_alarm)
        for rank in ranks:
            rank.group = self

    def catch_up(self, tick: int) -> None:
        """Simulate all that happens before ``tick``."""
        while self._due < tick:
            self._go_on(self._due, tick)

    def has_arrival(self, now: int, changes: bool) -> None:
        """Decide now if no rank has work, at the next step boundary if a batch may change."""
        if self._started == NEVER:
            self._decide_at(now)
        elif changes:
            self._cut(now)

    def _cut(self, tick: int) -> None:
        """Cut the run at its first step boundary from ``tick`` on."""
        if self._steps > 1:
            steps, elapsed = self._clock.boundary(tick - self._started)
            if steps < self._steps:
                self._steps = steps
                self._decide_at(self._started + elapsed)

    def _decide_at(self, tick: int) -> None:
        self._due = tick
        for rank in self._ranks:
            rank.due = tick
        first = self._ranks[0]
        if tick < NEVER and not first.on_demand:
            if not self._alarm.processed:
                self._alarm = Alarm(first.env, self._on_alarm)
            self._alarm.set(tick)

    def _on_alarm(self, alarm: Event) -> None:
        if alarm is self._alarm:  # else it was replaced
            self._ranks[0].env.tick = self._due
            self._go_on(self._due, 0)

    def _go_on(self, now: int, horizon: int) -> None:
        """End the run and decide, again and again until an event can come in between."""
        while True:
            if self._started < NEVER:
                self._steps_done += self._steps
                for rank in self._ranks:
                    rank.end(self._steps, now)
            batches = [rank.decide(now) for rank in self._ranks]
            self._started = NEVER
            wake = min(
                (r.due for r, b in zip(self._ranks, batches, strict=True) if b is None),
                default=NEVER,
            )
            if all(batch is None for batch in batches):
                self._decide_at(wake)
                return
            self._begin(batches, now)
            if wake < NEVER:
                self._cut(wake)
            if self._due >= horizon:
                self._decide_at(self._due)
                return
            now = self._due

    def _begin(self, batches: Listed[Batch | None], now: int) -> None:
        """Begin as many steps as every batch repeats."""
        steps = [1]
        working = [(r, b) for r, b in zip(self._ranks, batches, strict=True) if b is not None]
        if self._macro and not any(batch.drafted for _, batch in working):
            steps = [rank.repeats(batch) for rank, batch in working]
        self._steps = min(steps)
        duration = self._clock.begin_all(batches, self._steps, self._steps_done)
        self._started, self._due = now, now + duration
        for rank, batch in working:
            rank.begin(batch, now, duration)
