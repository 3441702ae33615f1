"""The roofline: a dot per operator that computes; loss of quality against gain in throughput."""

import pandas as pd
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


COLUMNS = ["technique", "metric", "throughput_percent", "loss_percent", "on_front",
           "is_other_model", "source"]  # fmt: skip
POINTS = pd.DataFrame(
    [
        ("paging", "kept", 20.0, 0.0, True, False, "by definition"),
        ("awq", "perplexity", 100.0, 2.4, True, False, "a paper"),
        ("int4", "perplexity", 90.0, 4.8, False, False, "a paper"),
        ("fp8", "accuracy", 50.0, 0.7, True, True, "a <card>"),
    ],
    columns=COLUMNS,
)


def test_each_metric_has_its_points_and_its_front() -> None:
    figure = figures.quality_against_throughput(POINTS)
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name) == [
        "front, perplexity", "front, accuracy", "kept", "perplexity", "accuracy"
    ]  # fmt: skip
    assert list(by_name["front, perplexity"].x) == [20.0, 100.0]
    assert list(by_name["front, accuracy"].y) == [0.0, 0.7]
    assert list(by_name["perplexity"].text) == ["awq", ""], "only the front has names"
    assert by_name["accuracy"].marker.symbol[0].endswith("-open")
    assert not by_name["perplexity"].marker.symbol[0].endswith("-open")
    assert by_name["accuracy"].customdata[0][1] == "a &lt;card>"
    assert figures.alt_text(figure).startswith("4 techniques")
    assert "awq: 2.4 % for +100 %" in figures.alt_text(figure)


def test_one_point_has_no_front_line() -> None:
    figure = figures.quality_against_throughput(POINTS[:1])
    assert [trace.name for trace in figure.data] == ["kept"]
    assert "On the front: paging" in figures.alt_text(figure)
