"""Pictures for a talk: their size, what they say of themselves, and their colours."""

import json

import pytest

pytest.importorskip("plotly", reason="pictures need plotly")

from servetwin.app import figures
from servetwin.app.figures.canvas import canvas
from servetwin.app.figures.pictures import HEIGHT_PX, Caption, picture, talk_layout
from tests.support.drawn_figures import DRAWN, LOOKS, TWO

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
    assert said == f"<b>{figures.title_of(figure)}</b>"
    assert layout.title.subtitle.text.splitlines()[0].startswith(CAPTION.source)
    assert f'<a href="{CAPTION.link}">{CAPTION.link}</a>' in layout.title.subtitle.text
    assert layout.font.size >= HEIGHT_PX / 40
    assert figure.to_json() == before, "the chart on the page stays as it is"


def test_a_title_is_of_the_figure_or_of_its_axes() -> None:
    assert figures.title_of(DRAWN["cdf"]()) == "Distribution of TTFT"
    assert figures.title_of(canvas("load, requests/s", "TTFT p99, ms", "")) == ("TTFT p99 by load")
    assert all(title[:1].isupper() for title in map(figures.title_of, made()))


def made() -> list[figures.Figure]:
    return [draw() for draw in DRAWN.values()]


def test_colours_are_those_of_the_page() -> None:
    figure = figures.latency_cdf(TWO, "ttft_s", LOOKS)
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
