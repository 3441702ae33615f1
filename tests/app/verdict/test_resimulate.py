"""Simulating again what a load test sent."""

from pathlib import Path

import pytest

from servetwin.app.verdict.claims import compare, compare_requests
from servetwin.app.verdict.measured_facts import recorded_trace, resimulate_as_sent
from servetwin.sim.records.run import RunError, load_run
from tests.support.figure_frames import load_test
from tests.support.report_runs import pretended, simulated

pytest.importorskip("plotly", reason="reports need plotly")


@pytest.fixture(scope="module")
def predicted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("runs") / "predicted")


def test_replaying_what_was_sent_finds_the_simulation_again(predicted_folder: Path) -> None:
    """The clients of this load test are 0.7 s late; latencies from when they sent know nothing
    of it."""
    predicted = load_run(predicted_folder)
    again, sent = resimulate_as_sent(predicted, pretended(predicted, lag_s=0.7))
    for row in compare(again, [sent]).metrics:
        assert row.error == pytest.approx(0, abs=1e-6), row
    assert not compare_requests(again, sent).unmatched
    late = compare(predicted, [pretended(predicted, lag_s=0.7)])
    assert any((row.error or 0) < -0.3 for row in late.metrics)


def test_what_was_sent_has_the_recorded_times_and_lengths() -> None:
    run = load_test(6, lag_s=0.25)
    run.requests.loc[2, "status"] = "failed"
    sent = recorded_trace(run)
    answered = run.requests.drop(index=2)
    assert [r.request_id for r in sent] == answered["request_id"].tolist()
    assert [r.arrival_s for r in sent] == (answered["scheduled_s"] + 0.25).tolist()
    assert [r.output_tokens for r in sent] == answered["output_tokens"].tolist()
    run.requests["status"] = "failed"
    with pytest.raises(RunError, match="no request of the measured run was answered"):
        recorded_trace(run)


def test_shared_prefixes_are_not_in_a_run_folder(predicted_folder: Path) -> None:
    predicted = load_run(predicted_folder)
    predicted.scenario["policies"]["prefix_cache"] = True
    with pytest.raises(RunError, match="does not keep which prompts share a prefix"):
        resimulate_as_sent(predicted, pretended(predicted))
