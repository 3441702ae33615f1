"""What a profile keeps of its calibration, and the step times that it gives."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app.dashboard.trust.profile_fit import decode_curve, prompt_curve
from servetwin.app.reports.verdict import fit_words
from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.profile import StepTimeFit, load_profile
from tests.support.paths import SHEET_PROFILE

CPU = load_profile("base-cpu").layouts["paged"]


def test_curves_are_the_fit_and_end_where_measuring_ended() -> None:
    decodes, prompts = decode_curve(CPU), prompt_curve(CPU)
    for curve in (decodes, prompts):
        assert curve["x"].is_monotonic_increasing
        assert (curve["low_s"] < curve["seconds"]).all()
        assert (curve["seconds"] < curve["high_s"]).all()
    assert decodes.loc[decodes["measured"], "x"].max() == 16
    assert prompts.loc[prompts["measured"], "x"].max() <= 1000  # 501,000 pairs of a prompt
    n = int(prompts["x"].iloc[7])
    expected = CPU.model().seconds(BatchShape(0, 0, 0, ((0, n),)))[0]
    assert prompts["seconds"].iloc[7] == pytest.approx(expected)


def test_the_fit_is_said_with_its_error() -> None:
    assert fit_words(CPU).startswith("893 steps, held-out error")


def test_a_computed_profile_has_no_residuals_and_says_so() -> None:
    fit: StepTimeFit = load_profile(SHEET_PROFILE).layouts["paged"]
    assert fit_words(fit) == "no step was timed, so there are no residuals"
    assert decode_curve(fit)["measured"].all()
