"""Figures of a profile's fit: residuals and step times."""

import numpy as np
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from servetwin.app import figures
from servetwin.app.dashboard.trust.profile_fit import decode_curve
from servetwin.sim.step_times.profile import load_profile

CPU = load_profile("base-cpu").layouts["paged"]


def test_the_unmeasured_part_of_a_curve_is_drawn_apart() -> None:
    looks = figures.looks(["paged"])
    drawn = figures.step_time_curve({"paged": decode_curve(CPU)}, "decodes, count", looks)
    lines = {trace.name: trace for trace in drawn.data}
    assert max(lines["paged"].x) == min(lines["paged, not measured"].x) == 16
    assert lines["paged, not measured"].line.dash == "dot"
    assert drawn.layout.xaxis.title.text == "decodes, count"


def test_half_of_the_steps_are_below_the_median_residual() -> None:
    noise = {"paged": CPU.noise}
    line, *_ = figures.residual_cdf(noise, figures.looks(noise)).data
    assert np.interp(50, line.y, line.x) == pytest.approx(100 * (np.median(CPU.noise) - 1), abs=0.1)
