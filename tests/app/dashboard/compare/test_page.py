"""Compare: tables by hand-made summaries, the page's logic, and its links in a real browser."""

from typing import Any

import pandas as pd
import pytest

from servetwin.app.dashboard.compare.policy_comparison import (
    OWN_LABEL,
    scenario_under,
    timeline_links,
)
from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.scenario_words import CANNOT_TELL
from servetwin.app.scenario.files.scenario_file import parse_scenario
from tests.support.dashboard_app import Browser, expect, page_test

pytestmark = pytest.mark.usefixtures("few_replications")


def small() -> Any:
    at = page_test("compare")
    at.session_state["requests"] = 60
    return at


def by_policy(shown: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the page with a row per policy, by its name without places to break it."""
    return shown.T.rename(index=lambda name: name.replace("\u200b", ""))


def test_page_has_both_tables_and_words() -> None:
    at = small().run()
    assert not at.exception
    values, differences = (by_policy(table.value) for table in at.table)
    assert len(values) == 3
    assert len(differences) == 2
    assert values["TTFT p90, ms"].str.contains("[", regex=False).all()
    assert any("faster" in m.value for m in at.markdown)


def test_a_recorded_trace_has_no_brackets_and_the_reason_once() -> None:
    at = page_test("compare")
    at.session_state["workload"] = "sample"
    at.run()
    assert not at.exception
    for table in at.table:
        assert not table.value.astype(str).map(lambda cell: "[" in cell).any().any()
    captions = [caption.value for caption in at.caption]
    assert sum(said.startswith("No intervals: a recorded trace") for said in captions) == 1
    assert not any("90 % interval" in said for said in captions)


def test_a_bad_label_is_one_line_and_the_others_stay() -> None:
    at = small()
    at.session_state["compare_policies"] = [OWN_LABEL, "vllm-v2", "chunked"]
    at.run()
    assert len(at.error) == 1
    assert "did you mean 'vllm-v1'" in at.error[0].value
    assert len(at.table[0].value.columns) == 2


def test_a_cache_that_cannot_hit_makes_no_difference_that_could_be_read() -> None:
    at = small()
    at.session_state["compare_policies"] = ["chunked+paged", "chunked+paged+prefix", "static"]
    at.run()
    assert not at.exception
    cells = by_policy(at.table[1].value)
    caching = escaped("chunked+paged+prefix")
    assert set(cells.loc[caching]) == {CANNOT_TELL}
    assert not set(cells.loc["static"]) & {CANNOT_TELL}
    assert at.info[0].value.startswith(caching)
    assert "**Shared prefix, tokens**" in at.info[0].value
    at.session_state["shared_prefix_tokens"] = 64
    at.run()
    assert not at.info
    assert not set(by_policy(at.table[1].value).loc[caching]) & {CANNOT_TELL}


def test_one_policy_has_no_differences_and_none_says_what_to_do() -> None:
    at = small()
    at.session_state["compare_policies"] = [OWN_LABEL]
    at.run()
    assert len(at.table) == 1
    at.session_state["compare_policies"] = []
    at.run()
    assert "Choose policies" in at.info[0].value
    assert not at.exception


def test_stopped_shows_what_was_done_until_told_to_go_on() -> None:
    at = small()
    at.session_state["compare_policies"] = [OWN_LABEL, "chunked"]
    at.run()
    at.session_state["compare_policies"] = [OWN_LABEL, "chunked", "static"]
    files = [scenario_under(parse_scenario("workload: {requests: 60}", "t"), label)
             for label in at.session_state["compare_policies"]]  # fmt: skip
    at.session_state["compare_stopped"] = tuple(file.model_dump_json() for file in files)
    at.run()
    assert len(at.table[0].value.columns) == 2
    next(b for b in at.button if b.label == "Go on").click().run()
    assert len(at.table[0].value.columns) == 3
    assert not at.exception


@pytest.mark.slow
@pytest.mark.browser
def test_long_work_can_be_stopped(user: Browser) -> None:
    page = user.page
    page.goto(f"{user.url}/compare?requests=3000&rate=40")
    page.get_by_role("button", name="Stop").click(timeout=60_000)
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    user.settle()
    expect(page.get_by_text("Stopped. The results so far")).to_be_visible()
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_the_link_of_a_request_opens_its_timeline_under_that_policy(user: Browser) -> None:
    file = scenario_under(parse_scenario("workload: {requests: 60}", "t"), "static")
    links = timeline_links(file, ["generated:7"])
    assert links
    user.open(links[0], "Timeline")
    expect(user.page.get_by_label("Request to explain")).to_have_value("generated:7")
    expect(user.page.get_by_label("Requests", exact=True)).to_have_value("60")
    user.assert_sound()
