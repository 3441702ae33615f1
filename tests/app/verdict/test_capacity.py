"""Near saturation: the capacity first, then the latencies at equal utilisation."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from servetwin.app.verdict.capacity import NEAR_SATURATION, compare_capacity, latency_limits
from servetwin.app.verdict.claims import CAPACITY_LIMIT, DEFAULT_LIMITS, THROUGHPUT
from servetwin.app.verdict.verifier import Verifier
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.run import Run, RunError
from servetwin.workloads.errors import LoadTestError
from tests.support.fake_calibrator import (
    PLAN,
    PROFILE,
    TRACE,
    FakeCalibrator,
    FakeMachine,
    verified,
)
from tests.support.figure_frames import load_test

NEAR = replace(PLAN, utilisations=(0.7, NEAR_SATURATION))


def completing(per_s: float) -> Run:
    """Forty requests at once that complete one after the other; the first and last take long."""
    ends_s = 5 + np.arange(1, 41) / per_s
    ends_s[:4] -= 3
    ends_s[-4:] += 3
    return load_test(40, scheduled_s=0.0, first_token_s=ends_s - 1, last_token_s=ends_s)


@pytest.mark.parametrize(
    ("rates_per_s", "outcome"),
    [
        ((9.99, 10.01), "holds"),
        ((10.49, 10.51), "refuted"),
        ((9.49, 9.51), "refuted"),
        ((9.5, 10.5), "cannot tell"),
        ((10.0,), "cannot tell"),
    ],
)
def test_the_capacity_has_an_interval_and_a_limit(
    rates_per_s: tuple[float, ...], outcome: str
) -> None:
    measured = [completing(rate) for rate in rates_per_s]
    found = compare_capacity(Interval(10.0, 9.9, 10.1), measured)
    (row,) = found.metrics
    assert row.limit == CAPACITY_LIMIT == 0.03
    assert row.measured == pytest.approx(np.mean(rates_per_s), rel=1e-9)
    assert row.error == pytest.approx(10 / np.mean(rates_per_s) - 1)
    assert found.outcome == row.outcome == outcome
    assert compare_capacity(Interval(10.0, 9.9, 10.1), measured, ["drift"]).outcome == "cannot tell"


def test_a_client_that_is_late_with_its_burst_is_no_doubt_and_a_busy_one_is() -> None:
    measured = [completing(rate) for rate in (9.99, 10.01)]
    reasons = ["schedule lag p99 180 ms, over 170 ms"]
    measured[0].extra["delivered"]["limited_by"] = reasons
    assert compare_capacity(Interval(10.0, 9.9, 10.1), measured).outcome == "holds"
    reasons.append("CPU 97%")
    (doubt,) = compare_capacity(Interval(10.0, 9.9, 10.1), measured).doubts
    assert "limited in 1 of 2 load tests (CPU 97%)" in doubt
    measured[1].extra["delivered"]["limited_by"] = reasons[:1]
    assert compare_capacity(Interval(10.0, 9.9, 10.1), measured).may_be_cleared
    found = compare_capacity(Interval(10.0, 9.9, 10.1), [*measured, completing(10.0)])
    assert (found.outcome, found.repeats, found.set_aside) == ("holds", 2, 1)


def test_throughput_has_no_limit_at_equal_utilisation() -> None:
    assert set(DEFAULT_LIMITS) - set(latency_limits(DEFAULT_LIMITS)) == {THROUGHPUT}


def test_near_saturation_the_capacity_is_measured_before_any_load(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    machine.slowness = lambda number: 1.12
    plan = replace(NEAR, limits={THROUGHPUT: 0.03, "tpot_s.mean": 0.05})
    found = verified(calibrator, plan, out=tmp_path)
    assert calibrator.events[1:5] == [
        "test saturation/1", "test saturation/2", "test at-70/1", "test at-70/2",
    ]  # fmt: skip
    assert found.saturation is not None
    capacity, measured_per_s = found.saturation.capacity, found.saturation.measured_per_s
    assert capacity.predicted == found.capacity_per_s
    assert capacity.error == pytest.approx(found.capacity_per_s.value / measured_per_s - 1)
    assert capacity.error is not None
    assert 0.08 < capacity.error < 0.15
    assert found.saturation.comparison.outcome == found.outcome == "refuted"
    below, near = found.levels
    assert below.trace.rate_per_s == pytest.approx(0.7 * found.capacity_per_s.value)
    assert near.trace.rate_per_s == pytest.approx(0.9 * measured_per_s)
    assert near.prediction.trace.rate_per_s == pytest.approx(0.9 * found.capacity_per_s.value)
    assert [row.metric for row in below.comparison.metrics if row.limit] == [
        THROUGHPUT, "tpot_s.mean",
    ]  # fmt: skip
    assert [row.metric for row in near.comparison.metrics if row.limit] == ["tpot_s.mean"]
    assert near.as_dict()["rate_per_s"] < near.as_dict()["predicted_rate_per_s"]
    found.save(tmp_path / "kept")
    record = json.loads((tmp_path / "kept" / "verdict.json").read_text())
    assert record["saturation"]["measured_per_s"] == measured_per_s
    assert record["saturation"]["comparison"]["outcome"] == "refuted"
    assert (tmp_path / "kept" / "saturation" / "measured-2" / "requests.parquet").exists()


def test_at_equal_utilisation_the_error_is_that_of_the_steps(
    calibrator: FakeCalibrator, machine: FakeMachine
) -> None:
    """Steps that are a fifth longer also make larger batches at 70 % of the predicted capacity."""
    machine.slowness = lambda number: 1.2
    found = verified(calibrator, replace(NEAR, replications=20))
    below, near = (
        next(row.error or 0.0 for row in level.comparison.metrics if row.metric == "tpot_s.mean")
        for level in found.levels
    )
    assert near == pytest.approx(1 / 1.2 - 1, abs=0.03)
    assert below < near - 0.03


def test_below_nothing_is_sent_at_once(calibrator: FakeCalibrator, machine: FakeMachine) -> None:
    found = verified(calibrator, replace(PLAN, utilisations=(0.5, 0.89)))
    assert found.saturation is None
    assert found.as_dict()["saturation"] is None
    assert not any(event.startswith("test saturation") for event in calibrator.events)


@pytest.mark.parametrize("interrupted_at", [2, 4])
def test_an_interrupted_ramp_goes_on_and_keeps_its_capacity(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path, interrupted_at: int
) -> None:
    """In the second load test of the capacity, and in the second at a share of it."""

    def slowness(number: int) -> float:
        if number == interrupted_at:
            raise KeyboardInterrupt
        return 1.05

    plan = replace(PLAN, utilisations=(NEAR_SATURATION,))
    machine.slowness = slowness
    with pytest.raises(KeyboardInterrupt):
        verified(calibrator, plan, out=tmp_path)
    calibrator.events.clear()
    machine.slowness = lambda number: 1.05
    found = verified(calibrator, plan, out=tmp_path, resume=True)
    first = "test saturation/2" if interrupted_at == 2 else "test at-90/2"
    assert calibrator.events[0] == first
    assert found.saturation is not None
    rate_per_s = NEAR_SATURATION * found.saturation.measured_per_s
    for run in found.levels[0].measured:
        sent_s = run.requests["scheduled_s"]
        assert (len(run.requests) - 1) / (sent_s.max() - sent_s.min()) == pytest.approx(rate_per_s)


def test_loads_without_the_capacity_that_they_are_a_share_of_are_refused(
    calibrator: FakeCalibrator, machine: FakeMachine, tmp_path: Path
) -> None:
    plan = replace(PLAN, utilisations=(NEAR_SATURATION,))
    verified(calibrator, plan, out=tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "saturation").rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"without those of the capacity .*into a new folder"):
        verified(calibrator, plan, out=tmp_path, resume=True)


@pytest.mark.parametrize("limit", [{"queue_limit": 4}, {"shed_ttft_s": 1.0}])
def test_a_server_that_refuses_a_backlog_is_tested_below(
    calibrator: FakeCalibrator, machine: FakeMachine, limit: dict[str, float]
) -> None:
    policies = replace(PROFILE.policy_config(), **limit)  # type: ignore[arg-type]
    profile = PROFILE.with_policies(policies)
    with pytest.raises(LoadTestError, match=r"from 0.9 on, the capacity .*refuses some; give less"):
        verified(calibrator, NEAR, profile=profile)
    assert calibrator.events == [], "nothing was sent"


@pytest.mark.slow
def test_the_bundled_engine_is_saturated_and_then_loaded_at_a_share_of_that() -> None:
    pytest.importorskip("torch")
    from servetwin.app.calibration.step_log import StepLogCalibrator
    from servetwin.app.scenario.options.engine import EngineChoice
    from servetwin.app.serving.engines import bundled_engine

    config = PolicyConfig(kv_tokens=4_096, max_model_len=640, max_seqs=8)
    plan = replace(PLAN, utilisations=(NEAR_SATURATION,), repeats=1, minutes=0.0)
    with bundled_engine(config, EngineChoice("tiny")) as engine:
        calibrator = StepLogCalibrator(engine)
        found = Verifier(
            calibrator, TRACE, plan, lambda _: None, profile=PROFILE.with_policies(config)
        ).run()
    assert found.saturation is not None
    (burst,), (level,) = found.saturation.measured, found.levels
    assert burst.requests["scheduled_s"].nunique() == 1
    measured_per_s = found.saturation.measured_per_s
    assert level.trace.rate_per_s == pytest.approx(0.9 * measured_per_s)
    assert found.saturation.comparison.outcome == "cannot tell", "one load test has no interval"
    assert found.decisions is not None
    assert found.decisions.identical
