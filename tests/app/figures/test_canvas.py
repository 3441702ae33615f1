"""Figures draw what the frames hold, for every eye, on a page and as pictures for a talk."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("plotly", reason="figures need plotly")
pytest.importorskip("plotly", reason="pictures need plotly")
from servetwin.app.figures import agreement, curves, over_time, timeline
from servetwin.app.figures.canvas import (
    COLOURS,
    DARK_PAGE,
    DASHES,
    LIGHT_PAGE,
    Figure,
    canvas,
    cdf_points,
    evenly,
    looks,
    stacked_canvas,
)
from servetwin.app.figures.pictures import HEIGHT_PX, Caption, picture, talk_layout
from servetwin.app.words import short
from tests.support.colour_vision import contrast, least_distance
from tests.support.drawn_figures import DRAWN, LOOKS, TWO, A
from tests.support.figure_frames import load_test, requests_frame


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.00183, "0.00183"),
        (37.43, "37.4"),
        (999.6, "1,000"),
        (1461.2, "1,461"),
        (-305251, "-305,251"),
    ],
)
def test_a_number_is_said_in_three_digits_or_whole(value: float, said: str) -> None:
    assert short(value) == said


def test_each_panel_has_its_legend_above_it() -> None:
    figure = stacked_canvas("x, s", ["y, s"] * 3, "Three.", [200] * 3)
    names = [figure.place_legend(row) for row in (1, 2, 3)]
    assert names == ["legend", "legend2", "legend3"]
    for name, axis in zip(names, figure.select_yaxes(), strict=True):
        legend = figure.layout[name]
        assert (legend.y, legend.yanchor) == (axis.domain[1], "bottom")


@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_stands_out_from_a_light_and_from_a_dark_page(colour: str) -> None:
    assert contrast(colour, LIGHT_PAGE) >= 3
    assert contrast(colour, DARK_PAGE) >= 3


@pytest.mark.parametrize("sight", ["all cones", "no red", "no green"])
def test_the_first_six_colours_stay_apart(sight: str) -> None:
    assert least_distance(COLOURS[:6], sight) > 20


def test_looks_keep_their_place_and_differ_without_colour() -> None:
    some = looks(["x", "y", "x", "z"])
    assert looks(["x", "y"])["y"] == some["y"]
    many = looks(map(str, range(42))).values()
    assert len({(look.dash, look.symbol) for look in many}) == 42
    assert {look.dash for look in many} == set(DASHES)


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


UNITLESS = {"request, in order of arrival", "batches"}


@pytest.mark.parametrize("name", DRAWN)
def test_axes_have_units_and_charts_have_texts(name: str) -> None:
    figure = DRAWN[name]()
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    titles = {axis.title.text for axis in axes} - {None, ""} - UNITLESS
    assert titles
    assert all(", " in title for title in titles), titles
    assert figure.alt.endswith(".")
    assert "nan" not in figure.alt
    json.loads(figure.to_json())


def test_nothing_at_all_can_be_drawn_too() -> None:
    nothing = {"A": A.iloc[:0]}
    refused = {"A": load_test(4, status="refused").requests}
    drawn = [curves.chunk_gap_cdf(refused, LOOKS)]
    for frames in (nothing, refused):
        drawn += [
            curves.latency_cdf(frames, "ttft_s", LOOKS),
            over_time.latency_over_time(frames, "ttft_s", LOOKS),
            over_time.throughput_over_time(frames, LOOKS),
            timeline.gantt(frames["A"]),
            agreement.predicted_against_measured(frames["A"], frames, "ttft_s", LOOKS),
        ]
    assert all(figure.layout.xaxis.title.text for figure in drawn)


def test_a_run_looks_the_same_in_every_chart() -> None:
    for name in ("cdf", "latency", "throughput"):
        colours = {t.line.color for t in DRAWN[name]().data if t.name == "B" and t.mode == "lines"}
        assert colours <= {LOOKS["B"].colour}


def test_many_requests_are_sampled() -> None:
    many = {"A": requests_frame(10_000)}
    assert len(timeline.gantt(many["A"]).data[0].y) == 120
    assert len(over_time.latency_over_time(many, "ttft_s", LOOKS).data[0].x) == 1500
    assert len(curves.latency_cdf(many, "ttft_s", LOOKS).data[0].x) == 400


def test_what_is_sampled_is_said_beside_the_figure() -> None:
    frame = requests_frame(10_000)
    many = {"A": frame}
    gains = frame[["request_id", "scheduled_s"]].assign(difference=frame["e2e_s"] - 1)
    assert timeline.gantt(frame).note == "120 of 10,000 finished requests shown."
    latencies = over_time.latency_over_time(many, "ttft_s", LOOKS)
    assert latencies.note == "1,500 of 10,000 requests shown."
    assert "slower under B: 1,500 of" in over_time.gains_over_time(gains, "A", "B").note
    cdf = curves.latency_cdf(many, "ttft_s", LOOKS)
    assert cdf.note == "", "a thinned curve looks the same"
    both = over_time.latency_over_time({**many, "B": frame}, "ttft_s", LOOKS)
    assert both.note == "Each: 1,500 of 10,000 requests shown."
    unlike = over_time.latency_over_time({**many, "B": requests_frame(2_000)}, "ttft_s", LOOKS)
    assert unlike.note == ("A: 1,500 of 10,000 requests shown; B: 1,500 of 2,000 requests shown.")
    few = curves.latency_cdf(TWO, "ttft_s", LOOKS)
    assert few.note == ""


def test_names_of_a_trace_are_no_markup() -> None:
    evil = requests_frame(3, request_id=["<b>x</b>", "<a href='//e'>y</a>", "a&b"])
    for figure in (timeline.gantt(evil), over_time.latency_over_time({"A": evil}, "ttft_s", LOOKS)):
        assert list(figure.data[0].text) == [
            "&lt;b>x&lt;/b>", "&lt;a href='//e'>y&lt;/a>", "a&amp;b",
        ]  # fmt: skip


CAPTION = Caption(
    "Simulated: a server; 30 requests of a trace", "http://127.0.0.1:1/what-if?rate=3"
)


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_wide_and_has_title_source_and_link(name: str) -> None:
    figure = DRAWN[name]()
    before = figure.to_json()
    drawn = picture(figure, CAPTION, "dark")
    layout = drawn.layout
    assert layout.width / layout.height == pytest.approx(16 / 9, abs=0.01)
    assert layout.height >= max(HEIGHT_PX, figure.layout.height or 0)
    said = layout.title.text.replace("<br>", " ")
    assert said == f"<b>{figure.title}</b>"
    assert layout.title.subtitle.text.splitlines()[0].startswith(CAPTION.source)
    assert f'<a href="{CAPTION.link}">{CAPTION.link}</a>' in layout.title.subtitle.text
    assert layout.font.size >= HEIGHT_PX / 40
    assert figure.to_json() == before, "the chart on the page stays as it is"


def test_a_title_is_of_the_figure_or_of_its_axes() -> None:
    assert DRAWN["cdf"]().title == "Distribution of TTFT"
    assert canvas("load, requests/s", "TTFT p99, ms", "").title == ("TTFT p99 by load")
    assert all(title[:1].isupper() for title in (figure.title for figure in made()))


def made() -> list[Figure]:
    return [draw() for draw in DRAWN.values()]


def test_colours_are_those_of_the_page() -> None:
    figure = curves.latency_cdf(TWO, "ttft_s", LOOKS)
    on = {theme: picture(figure, CAPTION, theme) for theme in ("light", "dark")}
    colours = {theme: [trace.line.color for trace in drawn.data] for theme, drawn in on.items()}
    assert colours["light"][0] == "#014170"
    assert not set(colours["light"]) & set(colours["dark"])
    assert on["dark"].layout.template.layout.paper_bgcolor == "#0e1117"


def test_names_of_others_are_no_markup_in_title_and_source() -> None:
    figure = canvas("x, s", "y, s", "", "of <b>x</b> & <a href='//e'>y</a>")
    layout = talk_layout(figure, Caption("<i>trace</i>", 'http://h/"><script>'))
    assert "<a" not in layout["title"]["text"]
    assert layout["title"]["text"].count("<b>") == 1
    lines = layout["title"]["subtitle"]["text"].split("<br>")
    assert lines[0] == "&lt;i>trace&lt;/i>"
    assert lines[1] == '<a href="http://h/%22>&lt;script>">http://h/"&gt;</a>'.replace(
        "&gt;</a>", ">&lt;script></a>"
    )


def test_long_texts_are_wrapped_and_a_long_link_is_shown_in_part() -> None:
    figure = canvas("x, s", "y, s", "", "a long title of words " * 8)
    link = "http://127.0.0.1:8501/compare?" + "x" * 900
    short, long = (
        talk_layout(figure, Caption(source, link)) for source in ("short", "many words " * 40)
    )
    assert short["title"]["text"].count("<br>") >= 2
    assert long["margin"]["t"] > short["margin"]["t"]
    assert long["legend"]["y"] < short["legend"]["y"]
    *_, shown = short["title"]["subtitle"]["text"].split("<br>")
    assert f'href="{link}"' in shown
    assert shown.partition(">")[2].endswith("...</a>")
    assert len(shown) - len(link) < 200


def test_a_command_in_place_of_a_link_is_text() -> None:
    layout = talk_layout(DRAWN["cdf"](), Caption("source", "servetwin replay trace.jsonl"))
    assert layout["title"]["subtitle"]["text"] == "source<br>servetwin replay trace.jsonl"


def test_the_layout_is_json_for_the_browser() -> None:
    for draw in DRAWN.values():
        layout = talk_layout(draw(), CAPTION)
        assert json.loads(json.dumps(layout)) == layout
