"""The roofline: a dot per operator that computes."""

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from servetwin.app.dashboard.techniques.server_panels import (
    breakdowns,
    operators_frame,
    peaks_flops_per_s,
)
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.techniques.registry import build_setup


def deployment(techniques: tuple[str, ...] = (), model: str = "llama-3-8b") -> Deployment:
    return build_setup(model, "h100", techniques).deployment


def test_the_figure_has_a_dot_for_every_operator_that_computes() -> None:
    found = deployment(("fp8",))
    frame = operators_frame(breakdowns(found, 32, 2048))
    peaks = peaks_flops_per_s(found)
    assert list(peaks) == ["fp8", "bf16"]
    figure = figures.roofline(frame, peaks, found.hardware.memory_bytes_per_s)
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(dots) == (frame["flops_per_s"] > 0).sum()
    assert {dot.marker.symbol for dot in dots if "prefill" in dot.name} == {
        "circle-open", "square-open", "triangle-up-open", "diamond-open"
    }  # fmt: skip
    (roof, _) = [trace for trace in figure.data if trace.mode == "lines"]
    assert roof.x[1] == pytest.approx(1978.9e12 / 3.35e12, rel=1e-3), "the ridge of fp8"
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "decode FFN: memory-bound" in figures.alt_text(figure)
