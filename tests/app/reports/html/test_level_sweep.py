"""The screen of a sweep on a page."""

import pytest

pytest.importorskip("plotly", reason="reports need plotly")
from servetwin.app.reports.html.charts import Charts
from servetwin.app.reports.html.first_screen import sweep_screen
from tests.support.swept_levels import swept, with_late_level


def test_the_knee_the_table_and_the_curves() -> None:
    sweep = swept(wanted=0.975)
    screen = sweep_screen("runs/<knee>", sweep, Charts())
    assert screen.card.kind == "Load levels: runs/<knee>"
    assert screen.card.title.startswith("PASS: up to 5 requests/s")
    assert screen.card.css == "good"
    assert screen.card.lines[0].startswith("knee: 5 requests/s")
    assert any("predicted knee: 5.2 requests/s" in line for line in screen.card.lines)
    assert len(screen.table.rows) == 2 * len(sweep.levels)
    assert {len(row) for row in screen.table.rows} == {len(screen.table.heads)}
    assert [chart.title for chart in screen.lead] == ["TTFT, p99", "TPOT, p99"]
    assert len(screen.charts) == 4
    assert not any(chart.printed for chart in screen.charts)
    assert screen.lines[0].startswith("load test of formula")


def test_a_level_that_does_not_count_says_why() -> None:
    screen = sweep_screen("knee", with_late_level(swept(load_tests=4)), Charts())
    assert "does not count: CPU 99%" in [str(row[1]) for row in screen.table.rows]
