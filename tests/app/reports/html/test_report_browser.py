"""A report opened from disk in a real browser that has no network."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest

pytest.importorskip("plotly", reason="reports need plotly")

from servetwin.app.reports.html.page import render_html
from servetwin.app.reports.report_folders import NamedRun
from servetwin.sim.records.metrics import SLO
from servetwin.sim.records.run import Run
from tests.support.dashboard_app import Chromium, expect, noted
from tests.support.figure_frames import load_test, requests_frame, steps_frame
from tests.support.report_kinds import KINDS, report_of

MOST_BYTES = 5_000_000
DRAWN = ".js-plotly-plot .main-svg"
STATE = pd.DataFrame({"at_s": [0.0, 5.0], "running": 1.0, "waiting": 0.0, "kv_usage": 0.5})


def runs(count: int) -> list[NamedRun]:
    """A simulation and a load test; three quarters of an hour at 10,000 requests."""
    steps = steps_frame(5 * count)
    simulation = Run("simulation", requests_frame(count, 1), steps, {"policies": {}}, {}, {})
    return [NamedRun("predicted", simulation), NamedRun("measured", load_test(count), STATE)]


def written(folder: Path, count: int) -> Path:
    page = folder / "report.html"
    page.write_text(render_html(runs(count), [], SLO(ttft_s=0.5, tpot_s=0.05)))
    return page


@contextmanager
def opened(
    chromium: Chromium, path: Path, scheme: Literal["light", "dark"] = "light", width: int = 1200
) -> Iterator[Any]:
    """The page, once all charts are drawn; at the end, it has asked for nothing else."""
    with chromium.page(width, scheme, offline=True) as page, noted(page) as (asked, said):
        page.goto(path.as_uri())
        page.locator(f"figure:last-of-type {DRAWN}").last.wait_for(timeout=60_000)
        yield page
        assert (asked, said) == ([path.as_uri()], [])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("report"), 60)


@pytest.mark.slow
@pytest.mark.browser
def test_every_chart_is_drawn_without_a_network(chromium: Chromium, report: Path) -> None:
    with opened(chromium, report) as page:
        charts = page.locator("figure").count()
        assert charts >= 8
        expect(page.locator(".js-plotly-plot")).to_have_count(charts, timeout=60_000)
        expect(page.locator("#chart-problem")).to_be_empty()


@pytest.mark.slow
@pytest.mark.browser
def test_text_and_charts_follow_the_browsers_theme(chromium: Chromium, report: Path) -> None:
    with opened(chromium, report, "dark") as page:
        for scheme, ink in (("dark", "rgb(230, 232, 238)"), ("light", "rgb(31, 36, 48)")):
            page.emulate_media(color_scheme=scheme)
            for part in ("body", "body .xtitle"):
                name = "fill" if "title" in part else "color"
                expect(page.locator(part).first).to_have_css(name, ink, timeout=30_000)


@pytest.mark.browser
def test_a_narrow_page_does_not_scroll_sideways(chromium: Chromium, report: Path) -> None:
    with opened(chromium, report, width=480) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 480


@pytest.mark.browser
def test_a_definition_is_one_hover_away(chromium: Chromium, report: Path) -> None:
    with opened(chromium, report) as page:
        word = page.locator("abbr", has_text="TTFT, ms").first
        assert "first token - scheduled" in word.get_attribute("title")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_report_fits_two_printed_pages(
    kind: str, chromium: Chromium, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_of(kind))
    with opened(chromium, path, "dark") as page:
        printed = page.pdf(prefer_css_page_size=True)
        charts = page.locator(".js-plotly-plot")
        expect(charts.first).to_have_css("width", re.compile(r"^[45]\d\d"))  # of the screen again
    assert 1 <= len(re.findall(rb"/Type /Page\b", printed)) <= 2


@pytest.mark.slow
@pytest.mark.browser
def test_what_is_printed_is_light_and_fits_its_column(chromium: Chromium, report: Path) -> None:
    with opened(chromium, report, "dark") as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        box = page.locator(DRAWN).first.bounding_box()
        assert box["width"] == 340
        expect(page.locator("body .xtitle").first).to_have_css("fill", "rgb(31, 36, 48)")
        expect(page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")
        assert page.locator("details:visible, .screen:visible").count() == 0
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        expect(page.locator("body .xtitle").first).to_have_css("fill", "rgb(230, 232, 238)")


@pytest.mark.browser
@pytest.mark.slow
def test_ten_thousand_requests_open_too(chromium: Chromium, tmp_path: Path) -> None:
    report = written(tmp_path, 10_000)
    assert report.stat().st_size < MOST_BYTES
    with opened(chromium, report) as page:
        assert page.locator(DRAWN).count() > 0
