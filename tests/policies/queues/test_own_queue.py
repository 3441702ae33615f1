"""A subclass of a scheduler has a queue of its own: ``build_queue``."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from servetwin.policies.config import PolicyConfig
from servetwin.policies.invariants import InvariantChecked
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.protocols import KVMemory, WaitingQueue
from servetwin.policies.queues.arrival_order import ArrivalOrder
from servetwin.policies.queues.ranked_queue import RankedQueue
from servetwin.policies.schedulers.continuous import ContinuousBatching
from servetwin.policies.schedulers.prefill_first import PrefillFirst
from servetwin.policies.schedulers.static import StaticBatching
from servetwin.policies.sequence import Sequence
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request
from tests.support.checked import request

ONE_SECOND = LinearStepTime.of({"constant": 1.0})


class ByPrompt(RankedQueue):
    """Short prompts first."""

    def rank(self, seq: Sequence) -> float:
        return seq.prompt_tokens


class NewestFirst(ArrivalOrder):
    """Last come, first served."""

    def head(self) -> Sequence | None:
        return self._arrived[-1] if self._arrived else None

    def pop(self) -> Sequence:
        self.size -= 1
        return self._arrived.pop()


class Spaced(ArrivalOrder):
    """No sequence joins before the last to join has five tokens, or is gone."""

    _last: Sequence | None = None

    def head(self) -> Sequence | None:
        return super().head() if not self._last or self._last.generated_tokens >= 5 else None

    def pop(self) -> Sequence:
        self._last = super().pop()
        return self._last

    def served(self, seq: Sequence) -> None:
        if seq is self._last:
            self._last = None


class Served(ArrivalOrder):
    """Remembers which sequences were served."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def served(self, seq: Sequence) -> None:
        self.names.append(seq.request_id)


class OwnContinuous(ContinuousBatching):
    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        return ByPrompt()


class OwnPrefillFirst(PrefillFirst):
    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        return ByPrompt()


class OwnStatic(StaticBatching):
    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        return ByPrompt()


class Newest(ContinuousBatching):
    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        return NewestFirst()


class Late(ContinuousBatching):
    def build_queue(self, config: PolicyConfig) -> WaitingQueue:
        return Spaced()


Build = Callable[[KVMemory, PolicyConfig], ContinuousBatching | StaticBatching]
SERVER = PolicyConfig(kv_tokens=64, block_tokens=4, max_seqs=1)


def run(build: Build, config: PolicyConfig, requests: list[Request], macro: bool = True) -> Run:
    scheduler = InvariantChecked(build(PagedKV(config), config), config, every_call=True)
    return simulate(requests, scheduler, ONE_SECOND, macro=macro)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (OwnContinuous, ["first", "short", "middle", "long"]),
        (OwnPrefillFirst, ["first", "short", "middle", "long"]),
        (OwnStatic, ["first", "short", "middle", "long"]),
        (Newest, ["first", "short", "long", "middle"]),
    ],
)
def test_the_order_is_that_of_ones_own_queue(build: Build, expected: list[str]) -> None:
    """One slot; while the first request runs, three others come."""
    requests = [
        request("first", 0.0, output=6),
        request("middle", 1.1, prompt=8),
        request("long", 1.2, prompt=12),
        request("short", 1.3, prompt=3),
    ]
    ends = run(build, SERVER, requests).requests.sort_values("last_token_s")
    assert ends["request_id"].tolist() == expected


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("build", [OwnContinuous, OwnStatic, Newest, Late])
def test_a_run_of_steps_hides_no_decision_of_ones_own_queue(build: Build, slots: int) -> None:
    config = replace(SERVER, max_seqs=slots)
    requests = [
        request("running", 0.0, prompt=16, output=20),
        request("too big for now", 0.5, prompt=46),
        *(request(f"{i}", 2.5 + 3 * i, prompt=2 + 5 * i % 7, output=3 + i % 4) for i in range(6)),
    ]
    single = run(build, config, requests, macro=False)
    macro = run(build, config, requests)
    pd.testing.assert_frame_equal(single.requests, macro.requests, check_exact=True)


def test_ones_own_queue_is_told_who_was_served() -> None:
    queue = Served()

    class Telling(ContinuousBatching):
        def build_queue(self, config: PolicyConfig) -> WaitingQueue:
            return queue

    run(Telling, SERVER, [request("a"), request("b")])
    assert queue.names == ["a", "b"]
