"""One simulated server: a scheduler, a step-time model, and SimPy's clock (in ticks)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from simpy.events import Event

from servetwin.policies.batch import Batch, Totals
from servetwin.policies.protocols import Load, Refusal, Scheduler
from servetwin.policies.sequence import Sequence
from servetwin.policies.step_record import record_step
from servetwin.sim.core.environment import NEVER, Alarm, Environment
from servetwin.sim.core.recorder import Recorder, pack_step
from servetwin.sim.core.run_clock import PassClock, RunClock, SlowedClock, run_clock
from servetwin.sim.core.visible_tokens import VisibleTokens
from servetwin.sim.step_times.acceptance import DraftVerifier
from servetwin.sim.step_times.step_time import SECONDS_PER_TICK, StepNoise, StepTime
from servetwin.workloads.errors import PolicyError

# A scheduler that sets so many timers in a row without a batch is taken to be stuck.
MOST_WAKES_IN_VAIN = 100_000
# Sequences that preempt each other so often without a token are taken to go on forever.
MOST_PREEMPTIONS_IN_VAIN = 10_000

# Receives a sequence that finished or was aborted (None), or was dropped (and why).
Listener = Callable[[Sequence, Refusal | None], None]


class Stalled(PolicyError):
    """A scheduler has sequences, but neither a batch nor a time at which it will have one."""


# A run of equal steps as decided: batch, its totals, start in ticks and seconds, load.
# Without chunks the totals are None: the lockstep has them.
_Plan = tuple[Batch, Totals | None, int, float, Load]

# The plan of a replica that has crashed: a step without an end.
_DOWN: _Plan = (Batch(), None, 0, 0.0, (0, 0, 0))


@dataclass(eq=False)
class Replica:
    """A simulated server that runs batch after batch.

    With ``macro``, repetitions of one batch are a single event; an arrival that changes the plan
    ends a run of steps at its next boundary. ``on_demand`` says that nothing follows from what this
    replica does before something looks at it. It has no events at all then: ``catch_up`` simulates
    it as far as that look needs.
    """

    env: Environment
    scheduler: Scheduler
    step_time: StepTime
    recorder: Recorder
    noise: StepNoise | None = None
    macro: bool = True
    index: int = 0
    verifier: DraftVerifier | None = None
    on_demand: bool = False

    def __post_init__(self) -> None:
        self.listeners: list[Listener] = []
        # The time of what the listeners learn.
        self.event_s = 0.0
        self._clock: RunClock = run_clock(
            self.step_time, self.noise, drafts=self.verifier is not None
        )
        # Whether runs of passes that verify drafts are timed; else each is an event.
        self._knows_passes = isinstance(self._clock, PassClock)
        self._rows, self._keeps_more = self.recorder.steps, self.recorder.keeps_more
        self._visible = VisibleTokens(self.recorder)
        self._steps = 0
        self._plan: _Plan | None = None
        self._planned_steps = 0
        self._idle_before = True
        self._wakes_in_vain = 0
        self._preemptions = 0
        # Who is told nothing while nothing gets here; None where it does.
        self._unheard: list[Listener] | None = None
        # Those to abort at the end of the step that runs.
        self._leaving: list[Sequence] = []
        # Tokens of each answer when preemptions were last counted anew.
        self._tokens: dict[str, int] = {}
        # The tick of the next decision if nothing arrives.
        self.due = NEVER
        self._alarm = Alarm(self.env, self._on_alarm)

    def catch_up(self, tick: int) -> None:
        """Simulate, on demand, all that happens before ``tick``."""
        while self.due < tick:
            self._go_on(self.due, tick)

    def submit_at(self, seq: Sequence, now: int) -> Refusal | None:
        """Add a sequence at ``now``, up to which the replica is simulated.

        Decide now if idle, at the next step boundary if it changes the batch.
        """
        if self._unheard is not None:
            return None
        self._wakes_in_vain = 0
        refusal = self.enter(seq)
        if refusal is None:
            if self._plan is None:
                self._decide_at(now)
            elif self._planned_steps > 1 and self.scheduler.changes_batch(seq):
                self._decide_early(self._plan, now)
        return refusal

    def abort(self, seq: Sequence, now: int) -> None:
        """Forget a sequence whose client has left, once the step that runs has ended."""
        self._leaving.append(seq)
        if self._plan is None:
            self._decide_at(now)
        elif self._planned_steps > 1:
            self._decide_early(self._plan, now)

    def crash(self, now: int, scheduler: Scheduler) -> None:
        """Stop at ``now``, before any step that ends then, and lose what is here.

        What comes until ``restart`` waits in ``scheduler``, whose memory is empty.
        """
        if self._plan is not None:
            self._lose(self._plan, now)
        self._plan, self._planned_steps = _DOWN, 1
        self.due = NEVER
        self._alarm = Alarm(self.env, self._on_alarm)  # another one rings in vain
        self.renew(scheduler)

    def _lose(self, plan: _Plan, now: int) -> None:
        """Complete the steps that end before ``now``; the next one is lost."""
        steps = self._clock.boundary(now - plan[2])[0] - 1
        if steps:
            end = plan[2] + self._clock.begin(plan[0], plan[1], steps, self._steps)
            self._end(plan, steps, end * SECONDS_PER_TICK)
        elif self.recorder.keep_usage:
            self.recorder.unused(self.index)
        self._steps += 1  # the lost step has a number, and noise, of its own

    def renew(self, scheduler: Scheduler) -> None:
        """Go on with an empty scheduler."""
        self.scheduler, self._leaving = scheduler, []
        self._visible = VisibleTokens(self.recorder)

    def restart(self) -> None:
        """Run again after a crash, with what came since then lost (``renew``)."""
        self._plan = None

    def cut_off(self) -> None:
        """Hear nothing and tell nothing from now on; what is here goes on."""
        self._unheard, self.listeners = self.listeners, []

    def reconnect(self, now: int) -> int:
        """Abort all that is here, for nobody waits for it; return when that is done."""
        self.listeners, self._unheard = self._unheard or [], None
        here = [*self.scheduler.holders(), *self.scheduler.waiting()]
        for seq in here:
            self.abort(seq, now)
        return self.due if here else now

    def slow_down(self, now: int, factor: float) -> None:
        """Let the steps that begin from ``now`` on take ``factor`` times as long."""
        if not isinstance(self._clock, SlowedClock):
            self._clock = SlowedClock(self._clock)
        self._clock.set_factor(factor)
        if self._plan is not None and self._planned_steps > 1:
            self._decide_early(self._plan, now)

    def enter(self, seq: Sequence) -> Refusal | None:
        """Give a sequence to the scheduler; one that another server began has tokens."""
        if seq.base_generated_tokens and self.recorder.hidden:
            self._visible.watch(seq, self._steps)
        return self.scheduler.add(seq)

    def repeats(self, batch: Batch) -> int:
        """Return how often a batch repeats before anything changes or is to be recorded."""
        steps = self.scheduler.repeatable_steps(batch)
        return self._visible.most_steps(steps, self._steps) if self.recorder.hidden else steps

    def _decide_at(self, tick: int) -> None:
        """Decide at ``tick`` and not before; on demand, without an alarm."""
        self.due = tick
        if not self.on_demand:
            if not self._alarm.processed:  # it has not rung yet, and is replaced
                self._alarm = Alarm(self.env, self._on_alarm)
            self._alarm.set(tick)

    def _on_alarm(self, alarm: Event) -> None:
        if alarm is self._alarm:  # else it was replaced
            self._go_on(self.due, 0)

    def _go_on(self, now: int, horizon: int) -> None:
        """End the planned run and decide, again and again until an event can come in between."""
        scheduler, clock, plan, steps = (
            self.scheduler, self._clock, self._plan, self._planned_steps,
        )  # fmt: skip
        is_bound = self.on_demand or self._keeps_more
        while True:
            if not self.on_demand:
                self.env.tick = now
            now_s = now * SECONDS_PER_TICK
            if plan is not None:
                self._end(plan, steps, now_s)
            batch = self._schedule(now_s)
            if batch is None:
                self._plan = None
                self._sleep(now)
                return
            steps = 1
            if self.macro and (self.verifier is None or self._knows_passes or not batch.drafted):
                steps = self.repeats(batch)
            totals = batch.totals() if batch.chunks else None
            end = now + clock.begin(batch, totals, steps, self._steps)
            plan = (batch, totals, now, now_s, scheduler.load())
            if self._keeps_more:
                self._note(plan, end - now)
            if end >= horizon and (is_bound or end >= self.env.next_tick()):
                self._plan, self._planned_steps = plan, steps
                self._decide_at(end)
                return
            now = end

    def _schedule(self, now_s: float) -> Batch | None:
        """Return the batch that begins now, with what was decided for it told; None without one."""
        scheduler = self.scheduler
        if self._leaving:
            self._abort_leaving(now_s)
        batch = scheduler.schedule(now_s)
        if scheduler.dropped:
            self._tell_dropped(scheduler.dropped, now_s)
        if batch is not None:
            if batch.preempted or batch.resumed:
                self.recorder.moved(batch, now_s)
                self._preemptions += len(batch.preempted)
                if self._preemptions > MOST_PREEMPTIONS_IN_VAIN:
                    self._require_tokens(now_s)
            if self.verifier is not None:
                self.verifier.verify(batch)
        return batch

    def _abort_leaving(self, now_s: float) -> None:
        leaving, self._leaving = self._leaving, []
        gone = [seq for seq in leaving if self.scheduler.abort(seq.request_id) is not None]
        self._tell_finished(gone, now_s)

    def _require_tokens(self, now_s: float) -> None:
        """Count preemptions anew. Raises ``Stalled`` where no answer got a token meanwhile."""
        present = [*self.scheduler.holders(), *self.scheduler.waiting()]
        tokens = {seq.output_id: seq.generated_tokens for seq in present}
        if tokens == self._tokens:
            raise Stalled(
                f"{len(tokens)} sequences preempt each other forever, with no token; give more KV "
                f"memory, or unequal priorities ({self._preemptions:,} preemptions by {now_s:g} s)"
            )
        self._preemptions, self._tokens = 0, tokens

    def _decide_early(self, plan: _Plan, tick: int) -> None:
        """Cut the plan at the first step boundary from ``tick`` on, and decide there."""
        started = plan[2]
        steps, elapsed = self._clock.boundary(tick - started)
        if steps < self._planned_steps:
            self._planned_steps = steps
            self._decide_at(started + elapsed)

    def _end(self, plan: _Plan, steps: int, now_s: float) -> None:
        """Complete a run of steps: advance the scheduler, record tokens and the row."""
        batch, totals, _, started_s, (running, waiting, free_tokens) = plan
        self._steps += steps
        if totals is None:
            group = batch.lockstep
            assert group is not None, "a batch has chunks, or a lockstep"
            decodes, prefills = group.size, 0
            rows = decodes * group.rows
            context = group.context_tokens + rows
            pairs = group.verified_pairs() if rows > decodes else 0
        else:
            decodes, context, _, prefills, rows, pairs, _ = totals
        self._rows += pack_step(
            started_s, now_s, steps, decodes, prefills, rows, context, pairs,
            running, waiting, free_tokens, self.index,
        )  # fmt: skip
        finished = self.scheduler.complete(batch, steps)
        recorder, received_s = self.recorder, now_s
        if finished or totals is not None or not batch.prompt_token or recorder.hidden:
            if recorder.api is not None:
                received_s += recorder.api.chunk_out_s(decodes + prefills)
            if totals is not None:
                recorder.prompts_ran(batch, started_s, received_s)
            if not batch.prompt_token:
                recorder.blocks_ran(batch, received_s)
            if recorder.hidden:
                self._visible.ran(batch, self._steps, received_s)
            if finished:
                recorder.ended(finished, received_s)
                if self.listeners:
                    self._tell_finished(finished, now_s)

    def _sleep(self, now: int) -> None:
        self._idle_before = True
        self.due = NEVER
        wake_s = self.scheduler.wake_s()
        running, waiting, _ = self.scheduler.load()
        if wake_s is None:
            if running or waiting:
                raise Stalled(_what_is_stuck(self.scheduler, now * SECONDS_PER_TICK))
            return
        self._wakes_in_vain += 1
        if not isfinite(wake_s) or self._wakes_in_vain > MOST_WAKES_IN_VAIN:
            raise Stalled(_what_is_stuck(self.scheduler, now * SECONDS_PER_TICK))
        self._decide_at(max(now, -int(-wake_s // SECONDS_PER_TICK)))

    def _tell_finished(self, finished: list[Sequence], now_s: float) -> None:
        self.event_s = now_s
        for listener in self.listeners:
            for seq in finished:
                listener(seq, None)

    def _tell_dropped(self, dropped: list[tuple[Sequence, Refusal]], now_s: float) -> None:
        self.event_s = now_s
        for seq, refusal in dropped:
            self.recorder.refused(seq, refusal)
            for listener in self.listeners:
                listener(seq, refusal)
        dropped.clear()

    def _note(self, plan: _Plan, duration: int) -> None:
        recorder, scheduler = self.recorder, self.scheduler
        if recorder.keep_usage:
            recorder.used(scheduler.memory.usage(scheduler.holders()), self.index)
        if recorder.keep_records:
            duration_s = duration * SECONDS_PER_TICK
            record = record_step(
                self._steps, plan[0], scheduler, plan[3], duration_s, self._idle_before
            )
            recorder.records.append(record)
            self._idle_before = False


def _what_is_stuck(scheduler: Scheduler, now_s: float) -> str:
    running, waiting, free = scheduler.load()
    head = min(scheduler.waiting(), key=lambda seq: seq.arrival_number, default=None)
    seq = head or scheduler.holders()[0]
    needed = seq.total_tokens
    lacks = "KV memory" if needed > free else "nothing but its turn"
    return (
        f"no progress is possible from {now_s:g} s on: {running} running and {waiting} waiting "
        f"requests, but no batch; request {seq.request_id!r} needs {needed} KV tokens of "
        f"{free} free, so it lacks {lacks}"
    )
