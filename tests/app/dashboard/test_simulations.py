"""Simulations that sessions share: computed once for all, ended when no session waits for them."""

import time
import weakref
from collections.abc import Callable
from contextlib import closing

import pytest

from servetwin.app.dashboard import simulations
from servetwin.app.dashboard.scenario import uploads
from servetwin.app.dashboard.scenario.uploads import Upload
from servetwin.app.dashboard.simulations import finished_replications, replications, simulate
from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.dashboard_app import CERTAIN


@pytest.mark.parametrize(
    ("achieved", "complaint"),
    [
        ("overhead_s=1e300", "overhead_s: 1e300 is not possible"),
        ("memory=1e-320", "a setting is too large or too small to simulate"),
    ],
)
def test_figures_beyond_all_numbers_are_an_error_of_the_scenario(
    achieved: str, complaint: str
) -> None:
    server = f"{{model: llama-3-8b, gpu: h100, efficiency: '{achieved}'}}"
    file = parse_scenario(f"deployment: {server}\nworkload: {{requests: 10}}", "test")
    with pytest.raises(ServetwinError, match=complaint):
        simulate(file)


def outcome(seed: int) -> simulations.SimulatedScenario:
    return simulate(parse_scenario(f"workload: {{requests: 500}}\nseed: {seed}", "test"))


def wait(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.01)


def test_an_equal_scenario_is_simulated_once_whatever_its_slo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = parse_scenario("workload: {requests: 10}\nseed: 77", "test")
    other = parse_scenario("workload: {requests: 10}\nseed: 77\nslo: {ttft_ms: 1}", "test")
    first = simulate(file)
    monkeypatch.setattr(simulations, "run_once", None)
    second = simulate(other)
    assert second.run is first.run
    assert second.summary["slo_attainment"] < first.summary["slo_attainment"]


def test_other_requests_have_the_same_servers_which_remember_their_step_times() -> None:
    slow, fast = (
        simulate(parse_scenario(f"workload: {{requests: 50, rate_per_s: {rate}}}", "test"))
        for rate in (3, 30)
    )
    assert slow.scenario.profile is fast.scenario.profile
    assert slow.run.requests["e2e_s"].mean() < fast.run.requests["e2e_s"].mean()
    long = "workload: {requests: 50, prompt_tokens: 20000, prompt_cv: 0.05}"
    assert simulate(parse_scenario(long, "test")).scenario.policies.max_model_len > 20_000


def test_sessions_that_wait_for_the_same_replications_share_one_job() -> None:
    shown = outcome(seed=78)
    with closing(replications(shown)) as first, closing(replications(shown)) as second:
        assert next(first) >= 1
        assert next(second) >= 1
        assert len(simulations._under_way) == 1
        assert finished_replications(shown) == []
        assert [*first][-1:] in ([simulations.REPLICATIONS], [])
    assert len(finished_replications(shown)) == simulations.REPLICATIONS
    assert list(replications(shown)) == []  # there already


def test_replications_stop_when_the_last_session_that_waits_has_moved_on() -> None:
    shown = outcome(seed=79)
    first, second = replications(shown), replications(shown)
    assert next(first) >= 1
    assert next(second) >= 1
    (job,) = map(weakref.ref, simulations._under_way.values())
    first.close()
    assert job() is not None
    second.close()
    wait(lambda: job() is None)
    assert finished_replications(shown) == []
    assert [*replications(shown)][-1] == simulations.REPLICATIONS  # another session begins anew


def test_a_process_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulations, "simulate_replication", int)
    with pytest.raises(ServetwinError, match=r"^int\(\)"):
        list(replications(outcome(seed=80)))


def test_another_percentile_of_the_slo_needs_no_other_replications() -> None:
    text = "workload: {requests: 40}\nseed: 81\nslo: {percentile: "
    strict, loose = (simulate(parse_scenario(f"{text}{p}}}", "test")) for p in (99, 50))
    assert [*replications(strict)][-1:] in ([simulations.REPLICATIONS], [])
    assert finished_replications(loose) == finished_replications(strict) != []


@pytest.mark.slow
def test_an_upload_is_replicated_whole_and_what_does_not_vary_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Trace(tuple(Request(f"r{n}", n / 50, 20, 2) for n in range(2_100)), "own.csv")
    monkeypatch.setattr(uploads, "uploads", lambda: {"own.csv": Upload(own, "whole")})
    text = "workload: {source: own.csv, rate_per_s: null}\n"
    varying = simulate(parse_scenario(f"{text}cluster: {{replicas: 2, router: random}}", "test"))
    assert [*replications(varying)][-1:] in ([simulations.REPLICATIONS], [])
    totals = [summary["requests"]["total"] for summary in finished_replications(varying)]
    assert totals == [2_100] * simulations.REPLICATIONS
    fixed = f"deployment: {{model: llama-3-8b, gpu: h100, efficiency: '{CERTAIN}'}}"
    certain = simulate(parse_scenario(text + fixed, "test"))
    assert [*replications(certain)] == []
    assert finished_replications(certain) == []
