"""Figures: what they draw is what the frames hold; units, limits, looks; and for every eye."""

import itertools
import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")

from app import figures
from app.figures.over_time import token_rates_per_s
from app.figures.palette import COLOURS, DARK_PAGE, DASHES, LIGHT_PAGE
from app.figures.sampling import cdf_points, evenly
from app.text.metric_labels import METRICS
from app.text.sparkline import sparkline, sparkline_lines
from tests.support.figure_frames import load_test, requests_frame, steps_frame

A, B = requests_frame(seed=1), requests_frame(seed=2)
TWO = {"A": A, "B": B}
LOOKS = figures.looks(TWO)
MEASURED = {"A": load_test().requests}
FRAME = A[["request_id", "scheduled_s"]].assign(ttft_s_difference=0.1)

STEPS = steps_frame().assign(steps=1, decode_sequences=2, rows=3)
SPANS = pd.DataFrame({"line": [0], "part": ["decode"], "start_s": [0.0], "end_s": [1.0]})
MOMENTS = figures.TimelineData(
    0.0, 9.0, A.head(3), SPANS, STEPS, figures.state_of_steps(STEPS, 1000)
)  # fmt: skip
ERRORS = pd.DataFrame(
    {"metric": ["TTFT"], "error": 1.0, "low": -1.0, "high": 2.0, "noise": np.nan, "allowed": 10.0}
)
BANDS = pd.DataFrame(
    {"least": [0.0], "most": 3.0, "requests": 9, "error": 0.1, "low": 0.0, "high": 0.2,
     "noise": 0.05}
)  # fmt: skip
CURVE = pd.DataFrame(
    {"x": [1, 2, 3], "seconds": 0.01, "low_s": 0.009, "high_s": 0.02,
     "measured": [True, True, False]}
)  # fmt: skip

DRAWN: dict[str, Callable[[], figures.Figure]] = {
    "cdf": lambda: figures.latency_cdf(TWO, "ttft_s", LOOKS, 0.5),
    "gaps": lambda: figures.chunk_gap_cdf(MEASURED, LOOKS),
    "latency": lambda: figures.latency_over_time(TWO, "tpot_s", LOOKS, 0.05),
    "throughput": lambda: figures.throughput_over_time(TWO, LOOKS),
    "lag": lambda: figures.schedule_lag(MEASURED, LOOKS),
    "server": lambda: figures.server_over_time(
        {"A": figures.state_of_steps(steps_frame(), 1000)}, LOOKS
    ),
    "gantt": lambda: figures.gantt(A),
    "agreement": lambda: figures.predicted_against_measured(A, {"B": B}, "e2e_s", LOOKS),
    "differences": lambda: figures.differences_over_time({"A": FRAME}, "ttft_s", LOOKS),
    "memory": lambda: figures.memory_bar({"A": {"weights": 3.0, "free": 1.0}}, "GiB"),
    "timeline": lambda: figures.timeline(MOMENTS, "r1"),
    "explained": lambda: figures.request_parts("r1", {"queue": 1.0, "decode": 3.0}),
    "errors": lambda: figures.errors_with_intervals(ERRORS),
    "bands": lambda: figures.error_per_band(BANDS, "ttft_s"),
    "residuals": lambda: figures.residual_cdf({"A": [0.9, 1.0, 1.1]}, LOOKS),
    "step time": lambda: figures.step_time_curve({"A": CURVE}, "decodes, count", LOOKS),
    "rests": lambda: figures.provenance_bar({"interpolated": 0.8, "extrapolated": 0.2}),
}
UNITLESS = {"request, in order of arrival", "batches"}


def contrast(colour: str, page: str) -> float:
    lighter, darker = sorted((luminance(colour), luminance(page)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def linear(colour: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Linear RGB of ``#rrggbb`` (sRGB, IEC 61966-2-1)."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.asarray(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4))


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


SIGHTS = {
    "all cones": np.eye(3),
    "no red": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "no green": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
}
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


def lab(
    rgb: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """CIELAB under D65."""
    to_xyz = np.array(
        [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    )
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb / [0.9505, 1.0, 1.0891], 0.0089, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_stands_out_from_a_light_and_from_a_dark_page(colour: str) -> None:
    assert contrast(colour, LIGHT_PAGE) >= 3
    assert contrast(colour, DARK_PAGE) >= 3


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_first_six_colours_stay_apart(sight: str) -> None:
    seen = [lab(np.clip(np.array(SIGHTS[sight]) @ linear(c), 0, 1)) for c in COLOURS[:6]]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20


def test_looks_keep_their_place_and_differ_without_colour() -> None:
    some = figures.looks(["x", "y", "x", "z"])
    assert figures.looks(["x", "y"])["y"] == some["y"]
    many = figures.looks(map(str, range(42))).values()
    assert len({(look.dash, look.symbol) for look in many}) == 42
    assert {look.dash for look in many} == set(DASHES)


@pytest.mark.parametrize("name", DRAWN)
def test_axes_have_units_and_charts_have_texts(name: str) -> None:
    figure = DRAWN[name]()
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    titles = {axis.title.text for axis in axes} - {None, ""} - UNITLESS
    assert titles
    assert all(", " in title for title in titles), titles
    assert figures.alt_text(figure).endswith(".")
    assert "nan" not in figures.alt_text(figure)
    json.loads(figure.to_json())


def test_nothing_at_all_can_be_drawn_too() -> None:
    nothing = {"A": A.iloc[:0]}
    refused = {"A": load_test(4, status="refused").requests}
    drawn = [figures.chunk_gap_cdf(refused, LOOKS)]
    for frames in (nothing, refused):
        drawn += [
            figures.latency_cdf(frames, "ttft_s", LOOKS),
            figures.latency_over_time(frames, "ttft_s", LOOKS),
            figures.throughput_over_time(frames, LOOKS),
            figures.gantt(frames["A"]),
            figures.predicted_against_measured(frames["A"], frames, "ttft_s", LOOKS),
        ]
    assert all(figure.layout.xaxis.title.text for figure in drawn)


def test_a_run_looks_the_same_in_every_chart() -> None:
    for name in ("cdf", "latency", "throughput"):
        colours = {t.line.color for t in DRAWN[name]().data if t.name == "B" and t.mode == "lines"}
        assert colours <= {LOOKS["B"].colour}


def test_a_cdf_crosses_a_half_at_the_median_and_has_the_limit() -> None:
    figure = DRAWN["cdf"]()
    line, _, limit = figure.data
    assert np.interp(50, line.y, line.x) == pytest.approx(A["ttft_s"].median() * 1e3, rel=0.1)
    assert line.x[-1] == pytest.approx(A["ttft_s"].max() * 1e3)
    assert list(limit.x) == [500, 500]
    assert limit.name == "SLO 500 ms"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=2000))
def test_cut_distributions_keep_their_ends_and_their_order(values: list[float]) -> None:
    x, share = cdf_points(pd.Series(values), most=50)
    assert len(x) == min(len(values), 50)
    assert (x[0], x[-1], share[-1]) == (min(values), max(values), 1)
    assert (np.diff(x) >= 0).all()
    for at, part in zip(x, share, strict=True):
        assert np.mean(np.array(values) < at) < part <= np.mean(np.array(values) <= at)


@given(st.integers(1, 5000), st.integers(2, 300))
def test_samples_are_small_and_have_both_ends(count: int, most: int) -> None:
    sample = evenly(pd.DataFrame({"at": range(count)}), most)["at"].tolist()
    assert len(sample) == min(count, most)
    assert (sample[0], sample[-1]) == (0, count - 1)
    assert len(set(sample)) == len(sample)


@given(st.integers(1, 80), st.integers(0, 1000))
def test_throughput_holds_every_token(count: int, seed: int) -> None:
    frame = requests_frame(count, seed)
    edges_s, rates_per_s = token_rates_per_s(frame)
    assert (rates_per_s * np.diff(edges_s)).sum() == pytest.approx(frame["output_tokens"].sum())


def test_the_state_is_that_of_the_steps_and_idle_between_them() -> None:
    one, two = steps_frame(replica=0), steps_frame(replica=1)
    state = figures.state_of_steps(pd.concat([one, two]), 1000)
    busy = state["at_s"] % 1 < 0.5
    expected = np.floor(state["at_s"]) + 1
    assert (state["running"] == np.where(busy, 2 * expected, 0)).all()
    assert state["kv_usage"].to_numpy() == pytest.approx(
        np.where(busy, 0.01 * (expected - 1), 0), abs=1e-12
    )
    assert figures.state_of_steps(one, None)["kv_usage"].isna().all()
    assert figures.state_of_steps(one.drop(columns="replica"), 1000).empty


def test_the_bars_of_a_request_lie_end_to_end() -> None:
    waiting, prefill, decode = figures.gantt(A).data
    assert waiting.base[0] == pytest.approx(A["scheduled_s"][0])
    for before, after in ((waiting, prefill), (prefill, decode)):
        assert np.add(before.base, before.x) == pytest.approx(after.base, abs=1e-4)
    assert np.add(decode.base, decode.x) == pytest.approx(A["last_token_s"], abs=1e-4)
    outside = figures.gantt(load_test().requests)
    assert [trace.name for trace in outside.data] == ["until the first token", "streaming"]


def test_many_requests_are_sampled() -> None:
    many = {"A": requests_frame(10_000)}
    assert len(figures.gantt(many["A"]).data[0].y) == 120
    assert len(figures.latency_over_time(many, "ttft_s", LOOKS).data[0].x) == 1500
    assert len(figures.latency_cdf(many, "ttft_s", LOOKS).data[0].x) == 400


def test_a_run_agrees_with_itself_on_the_diagonal() -> None:
    points = figures.predicted_against_measured(A, {"A": A}, "ttft_s", LOOKS).data[0]
    assert list(points.x) == list(points.y)
    middle = points.text.index("p50")
    assert points.x[middle] == pytest.approx(A["ttft_s"].median() * 1e3, rel=1e-6)


def test_names_of_a_trace_are_no_markup() -> None:
    evil = requests_frame(3, request_id=["<b>x</b>", "<a href='//e'>y</a>", "a&b"])
    for figure in (figures.gantt(evil), figures.latency_over_time({"A": evil}, "ttft_s", LOOKS)):
        assert list(figure.data[0].text) == [
            "&lt;b>x&lt;/b>", "&lt;a href='//e'>y&lt;/a>", "a&amp;b",
        ]  # fmt: skip


def test_memory_parts_add_up_and_have_known_names() -> None:
    with pytest.raises(KeyError, match="heap: a memory bar has weights"):
        figures.memory_bar({"A": {"heap": 1.0}}, "GiB")
    kv = {"live": 60, "reserved": 10, "cached": 5, "internal_waste": 3, "external_waste": 2}
    steps = steps_frame().assign(**{f"{k}_tokens": v for k, v in kv.items()}, free_tokens=20)
    parts = figures.mean_kv_parts(steps)
    assert parts == pytest.approx({"live": 60, "reserved": 10, "cached": 5, "waste": 5, "free": 20})


@given(st.lists(st.floats(0.001, 1e5), min_size=1, max_size=300), st.integers(1, 80))
def test_a_sparkline_shows_where_values_are(values: list[float], width: int) -> None:
    line = sparkline(pd.Series(values), width)
    assert len(line) == width
    assert "█" in line
    if max(values) > min(values) * (1 + 1e-9):
        assert width == 1 or " " not in (line[0], line[-1])


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([np.nan], ""),
        ([0, 0, 0, 0, 1, 2, 2, 3], "█▂▄▂"),
        ([1, 1, 10, 10, 10, 10, 100, 1000], "▄█▂▂"),
        ([1, 1.9, 3.9, 4.1], "▄▄ █"),
        ([0.02, 0.02, 0.02 + 1e-17], "█   "),
    ],
)
def test_sparklines_of_known_counts(values: list[float], drawn: str) -> None:
    assert sparkline(pd.Series(values, dtype=float), width=4) == drawn


def test_sparkline_lines_fit_a_terminal_and_name_their_ends() -> None:
    lines = sparkline_lines(A)
    assert [line.split()[0] for line in lines] == ["TTFT", "TPOT", "E2E"]
    assert f"{A['ttft_s'].min() * 1e3:.4g}" in lines[0]
    assert f"{A['ttft_s'].max() * 1e3:.4g}" in lines[0]
    assert max(map(len, lines)) <= 100
    assert sparkline_lines(A.assign(status="failed")) == []


def test_words_are_defined_for_every_metric() -> None:
    assert all(metric.definition and metric.label for metric in METRICS.values())
