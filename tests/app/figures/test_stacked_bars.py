"""Stacked bars: parts add up, and are named."""

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
pytest.importorskip("streamlit", reason="the dashboard needs streamlit")

from servetwin.app import figures
from tests.support.figure_frames import steps_frame


def test_what_a_scenario_rests_on_is_said_in_words_too() -> None:
    drawn = figures.provenance_bar(
        {"origins": {"measured here": 1.0}, "extrapolated": {"measured here": 0.25}}
    )
    assert [bar.x[0] for bar in drawn.data] == [75, 25]
    assert [bar.text for bar in drawn.data] == [
        "measured here 75 %",
        "extrapolated from it 25 %",
    ]
    assert len({bar.marker.color for bar in drawn.data}) == 1
    assert [bar.marker.pattern.shape for bar in drawn.data] == ["", "x"]
    lines = [line for bar in drawn.data for line in bar.name.split("<br>")]
    assert len(lines) > 2
    assert max(map(len, lines)) <= 64, "fits beside the controls at 900 px"
    assert "measured here 75 %, extrapolated from it 25 %." in figures.alt_text(drawn)
    assert figures.alt_text(figures.provenance_bar({"origins": {}, "extrapolated": {}})).endswith(
        "no step was run."
    )


def test_memory_parts_add_up_and_have_known_names() -> None:
    with pytest.raises(KeyError, match="heap: a memory bar has weights"):
        figures.memory_bar({"A": {"heap": 1.0}}, "GiB")
    kv = {"live": 60, "reserved": 10, "cached": 5, "internal_waste": 3, "external_waste": 2}
    steps = steps_frame().assign(**{f"{k}_tokens": v for k, v in kv.items()}, free_tokens=20)
    parts = figures.mean_kv_parts(steps)
    assert parts == pytest.approx({"live": 60, "reserved": 10, "cached": 5, "waste": 5, "free": 20})
