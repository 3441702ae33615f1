"""Replications: what is drawn in each, and that two scenarios meet the same draws."""

from typing import Any

import numpy as np
import pytest

from servetwin.app.scenario.files.scenario_file import ScenarioFile, parse_scenario
from servetwin.sim.experiments.predict import (
    Interval,
    difference,
    interval,
    is_outside,
    replication,
    run_once,
)
from servetwin.sim.experiments.scenario import Scenario, replicate
from servetwin.sim.records.metrics import figure
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import at_rate, limit

CERTAIN = "compute_spread=0,memory_spread=0,overhead_spread=0"
BASE = "workload: {requests: 80, rate_per_s: 20}"


def summaries(file: ScenarioFile, redraw: bool = True, seed: int = 0) -> list[dict[str, Any]]:
    trace = file.workload.trace(seed)
    scenario = file.build(trace)
    run = run_once(trace, scenario, seed=seed)
    drawn = file.redraw if redraw else None
    return [
        replication(
            trace, scenario, number, seed=seed, extrapolate=is_outside(run), redraw=drawn
        ).summary()
        for number in range(5)
    ]


def values(found: list[dict[str, Any]], metric: str) -> list[float]:
    return [value for one in found if (value := figure(one, metric)) is not None]


def test_without_a_draw_of_the_workload_a_certain_server_repeats_itself() -> None:
    server = f"deployment: {{model: llama-3-8b, gpu: h100, efficiency: '{CERTAIN}'}}"
    file = parse_scenario(f"{BASE}\n{server}", "test")
    assert len(set(values(summaries(file, redraw=False), "e2e_s.mean"))) == 1
    assert len(set(values(summaries(file), "e2e_s.mean"))) == 5


def test_every_scenario_meets_the_same_workloads() -> None:
    drawn: dict[str, list[int]] = {}

    def recorded(name: str, file: ScenarioFile) -> Any:
        def redraw(seed: int) -> tuple[Trace, Scenario]:
            drawn.setdefault(name, []).append(seed)
            return file.redraw(seed)

        return redraw

    for name, policies in (("a", "max_seqs: 2"), ("b", "batching: static, max_seqs: 8")):
        file = parse_scenario(f"{BASE}\npolicies: {{{policies}}}", "test")
        trace = file.workload.trace(0)
        scenario = file.build(trace)
        outside, redraw = is_outside(run_once(trace, scenario)), recorded(name, file)
        for number in range(3):
            replication(trace, scenario, number, seed=0, extrapolate=outside, redraw=redraw)
    assert drawn["a"] == drawn["b"]
    assert len(set(drawn["a"])) == 3


@pytest.mark.parametrize("replications", [20, 200])
def test_an_interval_covers_another_run_nine_times_in_ten(replications: int) -> None:
    """Of the values that another replication may have, whatever their distribution."""
    drawn = np.random.default_rng(1).lognormal(0.0, 0.8, (4000, replications + 1))
    covered = [
        found.low <= row[-1] <= found.high
        for row in drawn
        if (found := Interval.over(row[:-1].tolist()))
    ]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.012)


@pytest.mark.slow
def test_an_engine_that_is_the_profile_lies_in_the_interval_nine_times_in_ten() -> None:
    """600 engines, drawn as the calibration leaves them open, and intervals over 200 others."""
    profile, trace = load_profile("base-cpu"), at_rate(limit(sample_trace(), 25), 4.0)
    scenario = Scenario(profile.policy_config(), profile)
    runs = [
        replicate(trace, scenario, seed, draw=True).summary()
        for seed in np.random.SeedSequence(2).spawn(800)
    ]
    rng = np.random.default_rng(3)
    for metric in ("tpot_s.mean", "ttft_s.mean", "ttft_s.p90"):
        figures = np.array(values(runs, metric))
        covered = []
        for _ in range(50):
            engines, replications = np.split(rng.permutation(figures), [600])
            found = Interval.over(replications.tolist())
            covered.append(((engines >= found.low) & (engines <= found.high)).mean())
        assert 0.88 <= np.mean(covered) <= 0.92, metric


def test_the_first_replication_is_not_the_run_itself() -> None:
    file = parse_scenario(BASE, "test")
    trace = file.workload.trace(0)
    own = run_once(trace, file.build(trace)).summary()
    assert figure(own, "e2e_s.mean") not in values(summaries(file), "e2e_s.mean")


def test_what_both_share_cancels_in_the_difference() -> None:
    slow = summaries(parse_scenario(f"{BASE}\npolicies: {{max_seqs: 20}}", "test"))
    fast = summaries(parse_scenario(f"{BASE}\npolicies: {{max_seqs: 40}}", "test"))
    found, own = difference(slow, fast, "e2e_s.mean"), interval(fast, "e2e_s.mean")
    assert found is not None
    assert own is not None
    pairs = zip(values(slow, "e2e_s.mean"), values(fast, "e2e_s.mean"), strict=True)
    by_hand = sorted(b - a for a, b in pairs)
    assert found.value == pytest.approx(by_hand[2])
    assert by_hand[0] <= found.low <= found.high <= by_hand[-1]
    assert found.high - found.low < own.high - own.low


def test_a_difference_takes_pairs() -> None:
    one = {"ttft_s": {"p90": 1.0}}
    with pytest.raises(ValueError, match="shorter"):
        difference([one, one], [one], "ttft_s.p90")
    assert difference([one], [{"ttft_s": {"p90": None}}], "ttft_s.p90") is None
