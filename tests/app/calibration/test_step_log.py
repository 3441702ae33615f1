"""The whole loop on the tiny engine; what a load and a point of one's own calibrate."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from servetwin.app.calibration.calibrator import (
    LOAD_UTILISATION,
    load_rate_per_s,
    representative_load,
)
from servetwin.app.calibration.point import TERMS, ServerUnderLoad, fit_point, fit_terms, means_s
from servetwin.app.calibration.step_log import StepLogCalibrator
from servetwin.app.reports.report_folders import find_runs
from servetwin.app.reports.verdict import as_json, summary_table, verdict_lines
from servetwin.app.scenario.options.engine import EngineChoice
from servetwin.app.scenario.settings import policies_named
from servetwin.app.serving.engines import engine_at, started_engine
from servetwin.app.verdict.claims import DEFAULT_LIMITS
from servetwin.app.verdict.two_claims import STEPS
from servetwin.app.verdict.verification import Plan, Verification
from servetwin.app.verdict.verifier import Verifier
from servetwin.policies.config import PolicyConfig
from servetwin.sim.experiments.capacity import saturation_rate_per_s
from servetwin.sim.records.run import load_run
from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.tables import KernelTable
from servetwin.sim.step_times.tables.server_overheads import ServerOverheads
from servetwin.workloads.errors import EngineError
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from servetwin.workloads.transform import limit
from tests.support.made_kernels import MadeKernels

SMALL = PolicyConfig(kv_tokens=4_096, max_model_len=640, max_seqs=8)
REQUESTS = 40


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["static+contiguous", "continuous+paged+prefix"])
def found(request: pytest.FixtureRequest) -> Verification:
    said: list[str] = []
    config = policies_named(request.param, SMALL, "--policy")
    with (
        pytest.MonkeyPatch.context() as patch,
        started_engine(replace(EngineChoice("tiny").options(config), beat=True)) as engine,
    ):
        patch.setattr("servetwin.app.calibration.calibrator.LOAD_S", 2.0)
        assert engine_at(engine.url).step_log.samefile(engine.step_log)
        plan = Plan(repeats=2, replications=5, rounds=1, why=True)
        calibrator = StepLogCalibrator(engine, plan.seed, said.append)
        trace = limit(sample_trace(), REQUESTS)
        verification = Verifier(calibrator, trace, plan, said.append).run()
    assert [line.partition(" ")[0] for line in said] == ["calibrating:"] * 2 + [
        "load", "load", "explaining",
    ]  # fmt: skip
    return verification


def test_every_live_batch_is_the_simulators(found: Verification) -> None:
    assert found.decisions
    assert found.decisions.steps > 500
    assert found.decisions.identical, (found.decisions.engine, found.decisions.simulator)


def test_every_request_is_predicted_and_measured(found: Verification) -> None:
    (level,) = found.levels
    for run in (level.prediction.run, *level.measured):
        assert run.summary()["requests"]["finished"] == REQUESTS
    measured, predicted = level.measured[0].requests, level.prediction.run.requests
    assert measured["output_tokens"].tolist() == predicted["output_tokens"].tolist()
    if found.forecast.config.prefix_cache:
        assert measured["cached_tokens"].sum() > 0
        again = level.measured[1].requests["cached_tokens"].sum()
        assert again < 1.5 * measured["cached_tokens"].sum(), "a repeat must not find its twin"


def test_the_verdict_judges_what_has_a_limit(found: Verification) -> None:
    (level,) = found.levels
    rows = {row.metric: row for row in level.claims.comparison.metrics}
    assert rows.keys() >= DEFAULT_LIMITS.keys() - {"ttfo_s.mean"}, "no request reasons"
    for metric in DEFAULT_LIMITS.keys() & rows.keys():
        row, bound = rows[metric], DEFAULT_LIMITS[metric]
        assert row.error is not None
        assert row.error_low is not None
        assert row.error_high is not None
        assert row.error_low <= row.error <= row.error_high
        assert (row.outcome == "holds") == (-bound <= row.error_low and row.error_high <= bound)
    lines = "\n".join(verdict_lines(found))
    assert f"VERDICT: {found.outcome.replace('refuted', 'REFUTED')}; " in lines
    assert max(map(len, lines.splitlines())) <= 100
    assert len(summary_table([found])) == 4
    assert rows[STEPS].error is not None
    assert level.claims
    assert "machine: " in lines
    record = json.loads(as_json([found]))
    assert record["verifications"][0]["policy"] == record["policy"] == found.forecast.config.name
    assert record["identical_steps"] == record["steps"]


def test_the_explanation_is_of_what_was_sent(found: Verification) -> None:
    (level,) = found.levels
    assert level.why
    assert f"0 of {REQUESTS} requests had other lengths than in the trace" in level.why.notes
    assert level.as_dict()["why"] == asdict(level.why)
    assert "As measured in all simulations: requests were sent late by" in " ".join(
        "\n".join(verdict_lines(found)).split()
    )


def test_what_was_found_is_kept(found: Verification, tmp_path: Path) -> None:
    found.save(tmp_path)
    assert load_run(tmp_path / "at-70" / "predicted").kind == "simulation"
    assert load_run(tmp_path / "at-70" / "measured-2").kind == "loadtest"
    (trial,) = find_runs([tmp_path])[1]
    assert trial.comparison == found.levels[0].claims.comparison
    assert trial.why == found.levels[0].why
    profile = load_profile(str(tmp_path / "profile.json"))
    assert profile.policy_config() == found.forecast.config
    assert profile.api.request_s < 0.05, "a static server's wait is not the API's latency"


@pytest.mark.parametrize(("drifts", "rounds"), [([0.01], 2), ([0.07, 0.01], 3), ([0.07] * 9, 4)])
def test_rounds_that_disagree_are_repeated(drifts: list[float], rounds: int) -> None:
    class Drifting(StepLogCalibrator):
        def __init__(self) -> None:
            self.ran: list[str] = []

        def run_round(self, label: str) -> None:
            self.ran.append(label)

        def _drift(self) -> float:
            return drifts[len(self.ran) - 2]

    calibrator = Drifting()
    calibrator.identify(2)
    assert len(calibrator.ran) == rounds
    assert calibrator.ran[-1] == f"round {rounds} of {rounds}: bursts of all shapes"


def test_an_engine_with_drafts_is_not_calibrated() -> None:
    choice = EngineChoice("tiny", n_gram_drafts=2)
    with (
        started_engine(choice.options(SMALL)) as engine,
        pytest.raises(EngineError, match=r"^calibration: this engine's decodes verify drafts"),
    ):
        StepLogCalibrator(engine)


def test_the_load_of_a_calibration_is_like_the_trace_but_other_requests() -> None:
    trace = sample_trace()
    load = representative_load(trace, 20.0, 10.0, np.random.default_rng(0))
    assert len(load) == 200
    assert load.rate_per_s == pytest.approx(20.0, rel=0.2)
    ours, theirs = (np.mean([r.prompt_tokens for r in one]) for one in (load, trace))
    assert ours == pytest.approx(theirs, rel=0.2)
    assert not {r.request_id for r in load} & {r.request_id for r in trace}
    lengths = {(r.prompt_tokens, r.output_tokens) for r in trace}
    assert {(r.prompt_tokens, r.output_tokens) for r in load} <= lengths
    assert len(representative_load(trace, 0.5, 10.0, np.random.default_rng(0))) == 20
    assert len(representative_load(trace, 500.0, 10.0, np.random.default_rng(0))) == 400


def test_its_rate_is_near_the_capacity_of_the_profile() -> None:
    trace, profile = sample_trace(), load_profile("base-cpu")
    capacity_per_s = saturation_rate_per_s(trace, profile.policy_config(), profile)
    assert load_rate_per_s(trace, profile) == pytest.approx(LOAD_UTILISATION * capacity_per_s)


TABLE = KernelTable(MadeKernels(), "made")
POLICIES = PolicyConfig(
    batching="unified", kv="paged", kv_tokens=1 << 30, max_seqs=256, max_model_len=1 << 17,
    token_budget=2048,
)  # fmt: skip
COMMON = {name: width for name, width in TERMS.items() if name != "factor"}
TRUTH = ServerOverheads(step_s=1e-3, prefill_chunk_s=12e-3, prefill_row_s=5e-6, most_chunks=3)


def users(count: int, prompt: int, output: int) -> Trace:
    """Return the requests of so many users, four each, one after the other."""
    requests = (
        Request(
            f"{user}.{place}", 1e-3 * place, prompt + 7 * user, output + 3 * user,
            parent_ids=(f"{user}.{place - 1}",) if place else (), delay_s=0.0 if place else None,
        )
        for place in range(4)
        for user in range(count)
    )  # fmt: skip
    return Trace(tuple(requests), "users")


def measured(trace: Trace, overheads: ServerOverheads) -> ServerUnderLoad:
    """Return a server whose measured point is what the truth shows under a load."""
    unknown = ServerUnderLoad(trace, 1.0, 1.0, TABLE, POLICIES)
    ttft_s, tpot_s = means_s(unknown.run(overheads)).tolist()
    return ServerUnderLoad(trace, ttft_s, tpot_s, TABLE, POLICIES)


def test_overheads_are_found_from_means_of_several_loads() -> None:
    loads = (users(2, 500, 60), users(8, 3000, 40), users(16, 200, 100), users(4, 6000, 50))
    servers = [measured(load, TRUTH) for load in loads]
    found = fit_terms(servers, ServerOverheads(most_chunks=3), COMMON)
    for name in ("step_s", "prefill_chunk_s", "prefill_row_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.1), name


@pytest.mark.parametrize("factor", [0.8, 1.5])
def test_one_point_carries_over_to_other_loads(factor: float) -> None:
    """A server whose kernels and overheads both differ from what is known of its backend."""
    truth = replace(TRUTH, factor=factor)
    point = measured(users(8, 1500, 60), truth)
    prior = ServerOverheads(step_s=0.5e-3, prefill_chunk_s=8e-3, prefill_row_s=4e-6, most_chunks=3)
    found = fit_point(point, prior)
    for load in (users(2, 800, 60), users(16, 1000, 80)):
        other = measured(load, truth)
        predicted_s = means_s(other.run(found))
        assert predicted_s == pytest.approx(other.measured_s(), rel=0.08)
