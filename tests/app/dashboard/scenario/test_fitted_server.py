"""Measured times in an uploaded table become a profile, by a button."""

import json
from pathlib import Path

import pytest

from servetwin.app.dashboard.scenario.fitted_server import FittedServer, MeasuredTable, fit_server
from servetwin.app.scenario.files.scenario_file import ScenarioFile, Workload
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.errors import ServetwinError
from tests.support.dashboard_app import Browser, expect
from tests.support.paths import SHEET_PROFILE

COLUMNS = "arrival_s=sent_s,prompt_tokens=in,output_tokens=out,ttft_s=ttft_s,e2e_s=latency_s"
SCENARIO = ScenarioFile(
    deployment=Deployment(profile=(SHEET_PROFILE,)), workload=Workload(requests=80, rate_per_s=20)
)


def measured_csv(requests: int) -> str:
    """Return the log of a server that is the default one: what its simulation says."""
    trace = SCENARIO.workload.trace(0)
    run = run_once(trace, SCENARIO.build(trace), seed=0)
    columns = ["scheduled_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s"]
    rows = run.requests[columns].head(requests)
    return rows.to_csv(index=False, header=["sent_s", "in", "out", "ttft_s", "latency_s"])


def fit(requests: int) -> FittedServer:
    return fit_server(MeasuredTable("mine.csv", measured_csv(requests).encode(), COLUMNS, SCENARIO))


@pytest.mark.slow
def test_a_server_is_fitted_to_the_times_of_a_table() -> None:
    found = fit(80)
    assert found.requests == 80
    assert max(map(abs, found.errors.values())) < 0.1
    profile = Profile.model_validate(json.loads(found.profile))
    assert (profile.name, profile.origin) == ("mine", "measured by others")


def test_too_few_requests_are_refused() -> None:
    with pytest.raises(ServetwinError, match="a calibration needs at least 50"):
        fit(20)


@pytest.mark.slow
@pytest.mark.browser
def test_measured_times_offer_a_fit(user: Browser, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(measured_csv(20))
    user.open("why?requests=100", "Why")
    sidebar = user.page.get_by_test_id("stSidebar")
    user.upload(path)
    user.press("Use these columns")
    user.start("Fit a server to its measured times")
    expect(sidebar.get_by_text("a calibration needs at least 50")).to_be_visible()
    user.assert_sound()
