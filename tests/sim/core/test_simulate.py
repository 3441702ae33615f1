"""Requests on their way to a single server: no event, whatever its scheduler does."""

import pytest
import simpy

from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.request import Request

SECOND = LinearStepTime.of({"constant": 1.0})
STATIC = PolicyConfig(batching="static", wait_limit_s=0.5, max_seqs=4)


def run(config: PolicyConfig, *arrivals_s: float) -> Run:
    requests = [Request(str(at), arrival_s, 4, 2) for at, arrival_s in enumerate(arrivals_s)]
    return simulate(requests, build_scheduler(config), SECOND)


def test_a_timer_between_two_arrivals_rings_at_its_time() -> None:
    found = run(STATIC, 0.0, 0.25, 10.0, 30.0, 30.125)
    assert found.requests["queue_s"].tolist() == [0.5, 0.25, 0.5, 0.5, 0.375]


def test_the_number_of_arrivals_is_reported_every_thousand() -> None:
    arrivals: list[int] = []
    requests = [Request(str(at), float(at), 4, 1) for at in range(2001)]
    simulate(requests, build_scheduler(PolicyConfig()), SECOND, on_arrival=arrivals.append)
    assert arrivals == [1000, 2000]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of SimPy's events."""
    times: list[float] = []
    step = simpy.Environment.step

    def counted(self: simpy.Environment) -> None:
        step(self)
        times.append(self.now)

    monkeypatch.setattr(simpy.Environment, "step", counted)
    monkeypatch.setattr(simpy.Environment, "run", _run)
    return times


def _run(self: simpy.Environment) -> None:
    while self.peek() < float("inf"):
        self.step()


@pytest.mark.parametrize("config", [PolicyConfig(), STATIC], ids=["no timers", "timers"])
def test_no_request_and_no_timer_is_an_event(config: PolicyConfig, events: list[float]) -> None:
    found = run(config, *(0.7 * place for place in range(20)))
    assert (found.requests["status"] == "finished").all()
    assert events == []
