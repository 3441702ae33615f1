"""The empty figure: numbers in its alternative text, and panels with a legend each."""

import pytest

pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.figures.canvas import place_legend, spoken, stacked_canvas


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
    assert spoken(value) == said


def test_each_panel_has_room_for_the_legend_above_it() -> None:
    figure = stacked_canvas("x, s", ["y, s"] * 3, "Three.", [200] * 3, legend_px=80)
    names = [place_legend(figure, row, f"panel {row}") for row in (1, 2, 3)]
    assert names == ["legend", "legend2", "legend3"]
    domains = [axis.domain for axis in figure.select_yaxes()]
    for name, domain, above in zip(names, domains, [None, *domains], strict=False):
        legend = figure.layout[name]
        assert (legend.y, legend.yanchor, legend.title.side) == (domain[1], "bottom", "top")
        if above:
            assert (above[0] - domain[1]) * (3 * 200 + 2 * 80) == pytest.approx(80)
