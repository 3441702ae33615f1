"""What stands below a chart: what it shows, in words."""

from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from streamlit.testing.v1 import AppTest


def drawn(alt: str) -> Any:
    def script(alt: str) -> None:
        from servetwin.app.dashboard.charts import chart
        from servetwin.app.figures.canvas import canvas

        chart(canvas("x, s", "y, s", alt), "one")

    return AppTest.from_function(script, args=(alt,)).run()


def test_a_short_text_stands_below_the_chart_without_markup() -> None:
    at = drawn("The *median* is 3 ms.")
    assert not at.exception
    assert [caption.value for caption in at.caption] == [r"The \*median\* is 3 ms."]
    assert not at.expander


def test_a_long_text_is_folded_a_sentence_a_line_and_whole() -> None:
    at = drawn(" ".join(f"Policy {n} keeps 99.5 % at 8." for n in range(60)))
    assert not at.exception
    (folded,) = at.expander
    assert folded.label == "The chart in words"
    lines = folded.caption[0].value.split("\n\n")
    assert len(lines) == 60
    assert lines[-1] == "Policy 59 keeps 99.5 % at 8."
