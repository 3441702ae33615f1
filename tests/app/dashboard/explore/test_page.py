"""What if: the verdict in words, the page's logic, and its speed in a real browser."""

import asyncio
import re
from typing import Any

import pytest
import streamlit as st

from servetwin.app.dashboard.metrics_row import ALIKE, shown_metrics
from tests.support.dashboard_app import CERTAIN, Browser, ServedDashboard, expect, page_test
from tests.support.dashboard_session import open_session
from tests.support.effort import REDUCTION

pytestmark = pytest.mark.usefixtures("few_replications")


SHOWN = shown_metrics()
INTERVAL = re.compile(r"[\d,.]+ to [\d,.]+")


@pytest.mark.parametrize(("shared_tokens", "said"), [(0, True), (64, False)])
def test_a_prefix_cache_that_cannot_hit_is_said(shared_tokens: int, said: bool) -> None:
    at = page_test("explore")
    at.session_state["requests"], at.session_state["prefix_cache"] = 30, "on"
    at.session_state["shared_prefix_tokens"] = shared_tokens
    at.run()
    assert not at.exception
    words = "Generated prompts have nothing in common, so a prefix cache cannot hit"
    assert any(info.value.startswith(words) for info in at.info) is said


def small() -> Any:
    at = page_test("explore")
    at.session_state["requests"] = 60
    return at


def test_page_has_verdict_figures_and_intervals() -> None:
    at = small().run()
    assert not at.exception
    assert at.success[0].value.startswith("**Meets the SLO")
    assert len(at.metric) == len(SHOWN)
    assert all(metric.delta == "" for metric in at.metric)
    captions = [caption.value for caption in at.caption]
    assert sum(bool(INTERVAL.fullmatch(text)) for text in captions) == len(SHOWN) - 1
    assert ALIKE in captions, "all requests meet the SLO in every draw"


def test_a_recorded_trace_has_no_intervals_and_says_so_once() -> None:
    """On certain step times, other draws would be the same: one number is no interval."""
    at = page_test("explore")
    at.session_state["workload"], at.session_state["efficiency"] = "sample", CERTAIN
    at.run()
    assert not at.exception
    captions = [caption.value for caption in at.caption]
    assert not [said for said in captions if said.startswith(("90 %", "undefined", "difference"))]
    assert sum(said.startswith("No intervals: ") for said in captions) == 1
    next(b for b in at.button if b.label == "Pin as baseline").click().run()
    at.session_state["max_seqs"] = 2
    at.run()
    captions = [caption.value for caption in at.caption]
    assert at.metric[0].delta.startswith("+"), "a difference is there, without bounds"
    assert not [said for said in captions if said.startswith(("90 %", "difference"))]


def test_a_pinned_baseline_shows_paired_differences() -> None:
    at = small().run()
    next(b for b in at.button if b.label == "Pin as baseline").click().run()
    at.session_state["rate"] = 40.0
    at.run()
    assert not at.exception
    assert at.metric[4].delta.startswith("+")
    captions = [caption.value for caption in at.caption]
    assert sum(text.startswith("difference: ") for text in captions) == len(SHOWN)
    assert any("Changed since the baseline: rate 10.0 → 40.0." in text for text in captions)
    next(b for b in at.button if b.label == "Back to the baseline").click().run()
    assert at.session_state["rate"] == 10.0
    next(b for b in at.button if b.label == "Unpin").click().run()
    assert all(metric.delta == "" for metric in at.metric)


def test_another_slo_is_counted_anew() -> None:
    at = small().run()
    at.session_state["ttft_ms"] = 1.0
    at.run()
    assert at.error[0].value.startswith("**Misses the SLO (TTFT ≤ 1 ms")
    assert at.metric[6].value == "0"


def test_the_percentile_of_the_slo_decides() -> None:
    at = small()
    for name, value in {"requests": 100, "rate": 20.0, "ttft_ms": 120.0, "tpot_ms": None}.items():
        at.session_state[name] = value
    at.run()
    (attained,) = (float(m.value) for m in at.metric if m.label == "SLO attainment, %")
    assert 50 < attained < 99
    assert at.error[0].value.startswith("**Misses the SLO")
    at.session_state["percentile"] = 50.0
    at.run()
    assert at.success[0].value.startswith("**Meets the SLO")
    assert "50 % are required" in at.success[0].value


def test_the_reader_chooses_the_figures() -> None:
    at = small()
    at.session_state["latencies"] = ["p50", "mean"]
    at.run()
    assert [metric.label for metric in at.metric][:4] == [
        "TTFT mean, ms", "TTFT p50, ms", "TPOT mean, ms", "TPOT p50, ms"
    ]  # fmt: skip
    at.session_state["latencies"] = []
    at.run()
    assert len(at.metric) == 3
    assert not at.exception


def test_what_does_not_vary_has_no_intervals() -> None:
    at = page_test("explore")
    at.session_state["workload"], at.session_state["efficiency"] = "sample", CERTAIN
    at.run()
    assert not at.exception
    captions = [caption.value for caption in at.caption]
    assert not any(text.startswith("90 %") for text in captions)
    assert any(text.startswith("No intervals: a recorded trace") for text in captions)


def test_charts_and_intervals_wait_for_controls_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a slider passes has its verdict and its figures, and nothing else is computed for it."""
    monkeypatch.setattr("servetwin.app.dashboard.explore.page.await_rest", st.stop)
    at = small()
    at.session_state["seed"] = 91
    at.run()
    assert not at.exception
    assert len(at.success) == 1
    assert len(at.metric) == len(SHOWN)
    assert not at.get("plotly_chart")
    assert "..." in [caption.value for caption in at.caption]
    monkeypatch.undo()
    assert len(at.run().get("plotly_chart")) == 3


@pytest.mark.browser
def test_figures_are_sent_before_the_first_chart(dashboard: ServedDashboard) -> None:
    async def elements() -> list[str]:
        async with asyncio.timeout(120), open_session(dashboard.url, "requests=100") as session:
            while not session.is_finished:
                await session.receive()
            return session.drawn

    drawn = asyncio.run(elements())
    assert drawn.count("plotly_chart") == 3
    assert drawn[: drawn.index("plotly_chart")].count("metric") == len(SHOWN)


@pytest.mark.slow
@pytest.mark.browser
def test_each_move_of_the_slider_shows_other_figures(user: Browser) -> None:
    """Each comes while the intervals of the last still fill in."""
    user.open(f"explore?requests={1000 // REDUCTION}", "Explore")
    page = user.page
    slider = page.get_by_role("slider", name="Requests per second")
    first = page.get_by_test_id("stMetricValue").first
    for _ in range(5):
        before = first.inner_text()
        slider.press("ArrowRight")
        page.wait_for_function(
            "old => ![null, undefined, old].includes("
            "document.querySelector('[data-testid=stMetricValue]')?.innerText)",
            arg=before,
        )
    user.settle()
    user.assert_sound()


def own_trace(requests: int) -> bytes:
    rows = (f"2026-01-01 00:{n // 600:02}:{n // 10 % 60:02}.{n % 10}000000,{20 + n % 50},5"
            for n in range(requests))  # fmt: skip
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]).encode()


def upload(user: Browser, trace: bytes) -> None:
    user.upload({"name": "own.csv", "mimeType": "text/csv", "buffer": trace})


@pytest.mark.slow
@pytest.mark.browser
def test_all_of_an_upload_is_simulated_unless_a_part_is_asked_for(user: Browser) -> None:
    user.open("explore", "Explore")
    page = user.page
    upload(user, own_trace(2_600))
    expect(page.get_by_text("2,600 of 2,600 requests of own.csv")).to_be_visible()
    expect(page.get_by_label("Requests", exact=True)).to_have_attribute("placeholder", "all 2,600")
    user.fill("Requests", "700")
    expect(page.get_by_text("700 of 2,600 requests of own.csv")).to_be_visible()
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_what_a_cache_does_is_unknown_until_a_share_is_assumed(user: Browser) -> None:
    user.open("explore?prefix_cache=on", "Explore")
    page = user.page
    upload(user, own_trace(300))
    expect(page.get_by_text("What a prefix cache does, the trace cannot tell")).to_be_visible()
    user.fill("Assumed shared prefix", "0.5")
    expect(page.get_by_text("the trace cannot tell")).to_have_count(0)
    page.wait_for_url("**prefix_share=0.5**")
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_percentile_and_figures_are_in_the_link(user: Browser) -> None:
    user.open("explore?requests=100", "Explore")
    page = user.page
    user.fill("SLO percentile", "90")
    user.act(lambda: page.get_by_role("button", name="p50", exact=True).click())
    page.wait_for_url(re.compile("[?&]percentile=90"))
    page.wait_for_url(re.compile("[?&]latencies=p50"))
    expect(page.get_by_text("TTFT p50, ms")).to_be_visible()
    path = page.url.removeprefix(f"{user.url}/")
    user.open(path, "Explore")
    expect(page.get_by_label("SLO percentile", exact=True)).to_have_value("90")
    expect(page.get_by_text("TTFT p50, ms")).to_be_visible()
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_units_are_not_cut_off(user: Browser) -> None:
    user.open("explore?requests=100&rate=40", "Explore")
    for width in (1000, 1440):
        user.page.set_viewport_size({"width": width, "height": 900})
        user.settle()
        for test_id in ("stMetricLabel", "stMetricValue"):
            cut = user.page.get_by_test_id(test_id).evaluate_all(
                "all => all.flatMap(e => [e, ...e.querySelectorAll('*')])"
                ".filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).length"
            )
            assert cut == 0, f"{test_id} at {width} px"
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_long_latencies_are_in_seconds_and_their_ticks_are_numbers(user: Browser) -> None:
    """One sequence at a time under fifty requests a second: the last wait for minutes."""
    user.open("explore?requests=200&rate=50&max_seqs=1", "Explore")
    page = user.page
    expect(page.get_by_test_id("stMetricLabel").get_by_text("TTFT p90, s")).to_be_visible()
    expect(page.get_by_text("No bottleneck")).to_have_count(0)
    axis = page.locator(".st-key-explore_ttft_s .xtick text")
    axis.first.wait_for()
    texts = [text.replace(",", "") for text in axis.all_text_contents() if text]
    ticks = [float(text) for text in texts]
    assert len(ticks) >= 2
    assert ticks == sorted(set(ticks)), f"ticks grow to the right: {texts}"
    title = page.locator(".st-key-explore_ttft_s .xtitle")
    expect(title).to_have_text("TTFT, s")
    user.assert_sound()
