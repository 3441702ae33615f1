"""The whole loop on the tiny engine: serve, calibrate, predict, load-test, verdict."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from app.commands.verify import policy_of
from app.scenario.engine_options import EngineChoice
from app.text.verdict import as_json, summary_table, verdict_lines
from app.twin.engines import bundled_engine, engine_at
from app.twin.verification import Plan, Verification, verify
from loadtest.report.comparison import DEFAULT_LIMITS
from policies.config import PolicyConfig
from sim.records.run import load_run
from sim.step_times.profile import load_profile
from workloads.errors import EngineError, PolicyError
from workloads.sample import sample_trace
from workloads.transform import limit

SMALL = PolicyConfig(kv_tokens=4_096, max_model_len=640, max_seqs=8)


@pytest.fixture(scope="module", params=["static+contiguous", "continuous+paged+prefix"])
def found(request: pytest.FixtureRequest) -> Verification:
    said: list[str] = []
    config = policy_of(request.param, SMALL)
    with bundled_engine(config, EngineChoice("tiny")) as engine:
        assert engine_at(engine.url).step_log.samefile(engine.step_log)
        plan = Plan(replications=5)
        verification = verify(engine, limit(sample_trace(), 60), plan, said.append)
    assert len(said) == 1 + 2 * plan.repeats
    return verification


def test_every_live_batch_is_the_simulators(found: Verification) -> None:
    assert found.decision_check.steps > 500
    assert found.decision_check.identical, (
        found.decision_check.engine,
        found.decision_check.simulator,
    )


def test_every_request_is_predicted_and_measured(found: Verification) -> None:
    for run in (found.prediction.run, *found.measured):
        assert run.summary()["requests"]["finished"] == 60
    measured, predicted = found.measured[0].requests, found.prediction.run.requests
    assert measured["output_tokens"].tolist() == predicted["output_tokens"].tolist()
    if found.config.prefix_cache:
        assert measured["cached_tokens"].sum() > 0
        again = found.measured[1].requests["cached_tokens"].sum()
        assert again < 1.5 * measured["cached_tokens"].sum(), "a repeat must not find its twin"


def test_the_verdict_judges_what_has_a_limit(found: Verification) -> None:
    rows = {row.metric: row for row in found.comparison.metrics}
    for metric, bound in DEFAULT_LIMITS.items():
        row = rows[metric]
        assert row.error is not None
        assert row.noise is not None
        assert row.holds == (abs(row.error) <= max(bound, 2 * row.noise))
    lines = "\n".join(verdict_lines(found))
    assert f"VERDICT: the prediction {'holds' if found.comparison.holds else 'FAILED'}" in lines
    assert max(map(len, lines.splitlines())) <= 100
    assert len(summary_table([found])) == 4
    assert json.loads(as_json([found]))["verifications"][0]["policy"] == found.config.name


def test_what_was_found_is_kept(found: Verification, tmp_path: Path) -> None:
    found.save(tmp_path)
    assert load_run(tmp_path / "predicted").kind == "simulation"
    assert load_run(tmp_path / "measured-2").kind == "loadtest"
    profile = load_profile(str(tmp_path / "profile.json"))
    assert profile.policy_config() == found.config
    assert profile.api.request_s < 0.05, "a static server's wait is not the API's latency"


@pytest.mark.parametrize("label", ["static", "continuous+paged+cache", "static-paged"])
def test_a_policy_label_says_how_to_write_it(label: str) -> None:
    with pytest.raises(PolicyError, match="BATCHING\\+KV"):
        policy_of(label, SMALL)


def test_an_endpoint_that_is_not_ours_is_named() -> None:
    with pytest.raises(EngineError, match="does not answer /servetwin/engine"):
        engine_at("http://127.0.0.1:9")
