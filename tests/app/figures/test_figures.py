"""Figures: what they draw is what the frames hold; units, limits, looks; and for every eye."""

import json

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app import figures
from tests.support.drawn_figures import DRAWN, LOOKS, TWO, A
from tests.support.figure_frames import load_test, requests_frame

UNITLESS = {"request, in order of arrival", "batches"}


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


def test_many_requests_are_sampled() -> None:
    many = {"A": requests_frame(10_000)}
    assert len(figures.gantt(many["A"]).data[0].y) == 120
    assert len(figures.latency_over_time(many, "ttft_s", LOOKS).data[0].x) == 1500
    assert len(figures.latency_cdf(many, "ttft_s", LOOKS).data[0].x) == 400


def test_what_is_sampled_is_said_beside_the_figure() -> None:
    frame = requests_frame(10_000)
    many = {"A": frame}
    gains = frame[["request_id", "scheduled_s"]].assign(difference=frame["e2e_s"] - 1)
    assert figures.note_of(figures.gantt(frame)) == "120 of 10,000 finished requests shown."
    over_time = figures.latency_over_time(many, "ttft_s", LOOKS)
    assert figures.note_of(over_time) == "1,500 of 10,000 requests shown."
    assert figures.note_of(figures.gains_over_time(gains, "A", "B")) == (
        "1,500 of 10,000 requests shown."
    )
    cdf = figures.latency_cdf(many, "ttft_s", LOOKS)
    assert figures.note_of(cdf) == "", "a thinned curve looks the same"
    both = figures.latency_over_time({**many, "B": frame}, "ttft_s", LOOKS)
    assert figures.note_of(both) == "Each: 1,500 of 10,000 requests shown."
    unlike = figures.latency_over_time({**many, "B": requests_frame(2_000)}, "ttft_s", LOOKS)
    assert figures.note_of(unlike) == (
        "A: 1,500 of 10,000 requests shown; B: 1,500 of 2,000 requests shown."
    )
    few = figures.latency_cdf(TWO, "ttft_s", LOOKS)
    assert figures.note_of(few) == ""


def test_names_of_a_trace_are_no_markup() -> None:
    evil = requests_frame(3, request_id=["<b>x</b>", "<a href='//e'>y</a>", "a&b"])
    for figure in (figures.gantt(evil), figures.latency_over_time({"A": evil}, "ttft_s", LOOKS)):
        assert list(figure.data[0].text) == [
            "&lt;b>x&lt;/b>", "&lt;a href='//e'>y&lt;/a>", "a&amp;b",
        ]  # fmt: skip
