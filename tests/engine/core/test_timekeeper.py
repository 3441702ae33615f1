"""The reference beat and the time that other programs took from a core."""

import hashlib
import os
import resource
import threading
import time

import pytest
import torch

from servetwin.engine.core.timekeeper import BEAT_EVERY_S, Timekeeper
from servetwin.engine.kernels.beat import Beat
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.policies.config import PolicyConfig
from tests.support.timed_requests import run_requests
from tests.support.tiny_core import tiny_core

LARGE = bytes(1_000_000)


class Clocks:
    """Wall and CPU time of a core, both moved by hand; a beat takes 2 ms of either."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_s = self.cpu_s = 0.0
        self.beats = 0
        monkeypatch.setattr(time, "thread_time", lambda: self.cpu_s)

    def run(self, seconds: float, lost_s: float = 0.0) -> None:
        self.cpu_s += seconds
        self.wall_s += seconds + lost_s

    def beat(self) -> None:
        self.beats += 1
        self.run(0.002, lost_s=0.001)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def keeper_of(clocks: Clocks, *, computes_here: bool) -> Timekeeper:
    return Timekeeper(clocks.beat, lambda: clocks.wall_s, computes_here=computes_here)


def test_the_lost_time_is_wall_time_without_cpu_time(clocks: Clocks) -> None:
    clocks.run(1.0)
    keeper = keeper_of(clocks, computes_here=True)
    keeper.begin_step(clocks.wall_s)
    clocks.run(0.010, lost_s=0.004)
    keeper.end_step()
    assert clocks.beats == 1, "the first is due at once"
    beat_s, lost_s, _ = keeper.begin_step(clocks.wall_s)
    assert beat_s == pytest.approx(0.002), "in CPU time"
    assert lost_s == pytest.approx(0.004 + 0.001), "of the step and of the beat"
    clocks.run(0.010)
    assert keeper.begin_step(clocks.wall_s)[:2] == pytest.approx((0.0, 0.0)), "each is told once"


def test_a_device_of_its_own_has_beats_in_wall_time(clocks: Clocks) -> None:
    keeper = keeper_of(clocks, computes_here=False)
    clocks.run(0.1, lost_s=0.2)
    keeper.end_step()
    assert keeper.begin_step(clocks.wall_s) == pytest.approx((0.003, 0.0, 0))


def test_a_device_with_a_clock_tells_its_beats_itself(clocks: Clocks) -> None:
    keeper = Timekeeper(lambda: 0.0007, lambda: clocks.wall_s, computes_here=False)
    clocks.run(0.1)
    keeper.end_step()
    assert keeper.begin_step(clocks.wall_s).beat_s == 0.0007


def test_beats_change_no_token() -> None:
    answers = []
    for timekeeper in (
        None,
        Timekeeper(Beat(torch.device("cpu")), time.perf_counter, computes_here=True),
    ):
        core = tiny_core(PolicyConfig(kv_tokens=512))
        core.timekeeper = timekeeper
        sampled = SamplingParams(24, temperature=1.0, seed=3, ignore_eos=True)
        events = run_requests(core, [(0.0, "a", [*range(300, 340)], sampled)])
        answers.append([event.token_id for event in events])
    assert len(answers[0]) == 24
    assert answers[0] == answers[1]


def test_beats_keep_their_distance(clocks: Clocks) -> None:
    keeper = keeper_of(clocks, computes_here=True)
    clocks.run(1.0)
    began_s = clocks.wall_s
    while clocks.wall_s < began_s + 10 * BEAT_EVERY_S:
        keeper.end_step()
        clocks.run(0.001)
    assert clocks.beats == 10


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="the system does not count them")
def test_a_thread_that_must_leave_its_core_knows_how_often() -> None:
    """Two threads compute on one core, which the system takes from either now and then."""
    switches = list[int]()

    def compute() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        keeper = Timekeeper(lambda: None, time.monotonic, computes_here=True)
        keeper.begin_step(time.monotonic())
        until_s = time.monotonic() + 0.4
        while time.monotonic() < until_s:
            hashlib.sha256(LARGE)  # without the lock of the interpreter
        switches.append(keeper.begin_step(time.monotonic()).switches)

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(switches) >= 3, switches
