"""What stands beside a chart, and the one menu that saves what is on a page."""

from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from streamlit.testing.v1 import AppTest


def script() -> None:
    import pandas as pd

    from servetwin.app.dashboard.charts import chart, downloads, draw_save_menu, titled_page
    from servetwin.app.figures.canvas import canvas

    with titled_page("Title", "Question?"):
        downloads(pd.DataFrame({"a": [1]}), "rows")
        for name in ("one", "two"):
            chart(canvas("x, s", "y, s", "The *median* is 3 ms."), name)
        draw_save_menu()


@pytest.fixture(scope="module")
def drawn() -> Any:
    at = AppTest.from_function(script).run()
    assert not at.exception
    return at


def test_what_a_chart_shows_is_read_by_readers_of_the_screen_only(drawn: Any) -> None:
    assert not drawn.caption
    assert not drawn.expander
    assert [one.proto.alt for one in drawn.get("plotly_chart")] == ["The *median* is 3 ms."] * 2


def test_one_menu_has_every_chart_and_all_data(drawn: Any) -> None:
    (menu,) = drawn.get("popover")
    buttons = menu.get("download_button")
    assert [one.proto.label for one in buttons] == ["rows, CSV", "rows, Parquet"]
    assert [one.proto.body.count("SVG, dark") for one in menu.get("html")] == [1, 1]


def test_a_page_without_charts_offers_its_data() -> None:
    def without_charts() -> None:
        import pandas as pd

        from servetwin.app.dashboard.charts import downloads, titled_page

        with titled_page("Title", "Question?"):
            downloads(pd.DataFrame({"a": [1]}), "rows")

    at = AppTest.from_function(without_charts).run()
    assert not at.exception
    assert len(at.get("download_button")) == 2
