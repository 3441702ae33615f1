"""A calibrator and load tests that take no time, for the loop of a verification."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from servetwin.app.verdict import verifier
from servetwin.app.verdict.forecast import Forecast, make_forecast
from servetwin.app.verdict.verification import Plan, Verification
from servetwin.app.verdict.verifier import Verifier
from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.run.client import LoadOptions
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import Profile, load_profile
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit
from tests.support.stamped_runs import stamped

PROFILE = load_profile("base-cpu").model_copy(update={"machine": {}})
TRACE = limit(sample_trace(), 40)

PLAN = Plan(replications=4, repeats=2, limits={"tpot_s.mean": 0.05})


class FakeCalibrator:
    """Knows its profile before the first round; ``events`` has what was done, in order."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(
            "http://host:1/v1", "model", prompt="ids", max_model_len=2048, salt="salt"
        )
        self.events: list[str] = []
        self.stopped: str | None = None

    def identify(self, rounds: int, trace: Trace) -> None:
        self.events.append(f"identify, {rounds} rounds for {len(trace)} requests")

    def profile(self, name: str = "calibrated") -> Profile:
        return PROFILE.model_copy(update={"name": name})

    def as_counted(self, trace: Trace) -> Trace:
        return trace.replaced(list(trace), "as counted")

    def server_log(self) -> None:
        return None

    def check_decisions(self) -> DecisionCheck:
        return DecisionCheck(3, 3)


@cache
def _forecast(trace: Trace, profile: str, loads: tuple[float, ...], **more: Any) -> Forecast:
    return make_forecast(trace, Profile.model_validate_json(profile), loads, **more)


def same_forecast(
    trace: Trace, profile: Profile, utilisations: tuple[float, ...], **more: Any
) -> Forecast:
    """Make the forecast of equal arguments once: most verifications here begin with the same."""
    return replace(_forecast(trace, profile.as_json(), utilisations, **more), profile=profile)


class FakeMachine:
    """An engine that needs ``slowness(n)`` times the profile's time in its n-th load test.

    ``burst_slowness`` is that of the bursts before them. Its clients see every token; its server
    tells nothing.
    """

    def __init__(self, calibrator: FakeCalibrator) -> None:
        self.slowness: Callable[[int], float] = lambda number: 1.0
        self.tests = 0
        self.bursts = 0
        self.burst_slowness = 1.0
        self._events = calibrator.events

    def answer(self, endpoint: Endpoint, trace: Trace, options: LoadOptions | None = None) -> Run:
        """Answer a load test, or a burst, which comes at once."""
        return self.burst(trace, options) if options else self.test(endpoint, trace)

    def test(self, endpoint: Endpoint, trace: Trace) -> Run:
        """Find what a simulation finds, on a machine of another speed."""
        assert trace.notes[-1] == "as counted"
        self.tests += 1
        self._events.append(f"test {endpoint.salt}".replace("salt/", ""))
        run = stamped(trace, PROFILE.scaled(self.slowness(self.tests)))
        return replace(run, records=[])

    def burst(self, trace: Trace, options: LoadOptions) -> Run:
        """Find the speed of the machine."""
        assert options.lead_s < 0.1
        self.bursts += 1
        return stamped(trace, PROFILE.scaled(self.burst_slowness))


def machine_of(calibrator: FakeCalibrator, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Let the load tests and bursts of a verification meet a machine that takes no time.

    Equal forecasts are made once.
    """
    machine = FakeMachine(calibrator)
    monkeypatch.setattr(verifier, "run_load_test", machine.answer)
    monkeypatch.setattr(verifier, "make_forecast", same_forecast)
    return machine


def verified(
    calibrator: FakeCalibrator, plan: Plan = PLAN, trace: Trace = TRACE, **more: Any
) -> Verification:
    """Verify without a word of progress."""
    return Verifier(calibrator, trace, plan, lambda _: None, **more).run()
