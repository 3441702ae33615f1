"""The section of a sweep on a page."""

import xml.etree.ElementTree as ET

import pytest

pytest.importorskip("plotly", reason="reports need plotly")
from servetwin.app.reports.html.charts import Charts
from servetwin.app.reports.html.level_sweep import level_sweep_section
from tests.support.swept_levels import swept, with_late_level


def test_the_knee_the_table_and_the_curves() -> None:
    sweep = swept(wanted=0.975)
    section = level_sweep_section("runs/<knee>", sweep, Charts())
    text = "".join(section.itertext())
    assert "Sweep over load levels: runs/<knee>" in text
    assert "Knee: 5 requests/s" in text
    assert "predicted knee: 5.2 requests/s" in text
    rows = section.findall(".//tbody/tr")
    assert len(rows) == 2 * len(sweep.levels)
    assert len({len(row) for row in rows}) == 1
    assert len(section.findall(".//figure")) == 6
    assert "&lt;knee&gt;" in ET.tostring(section, encoding="unicode")


def test_a_level_that_does_not_count_says_why() -> None:
    section = level_sweep_section("knee", with_late_level(swept(load_tests=4)), Charts())
    assert "does not count: CPU 99%" in "".join(section.itertext())
