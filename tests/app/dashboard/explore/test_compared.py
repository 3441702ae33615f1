"""The page Explore with other policies beside the scenario, and its links to single requests."""

from typing import Any

import pandas as pd
import pytest

from servetwin.app.dashboard.explore.comparison import POLICIES_KEY, links_to_why, scenario_under
from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.scenario_words import CANNOT_TELL
from servetwin.app.scenario.files.scenario_file import parse_scenario
from tests.support.dashboard_app import CERTAIN, Browser, expect, page_test

pytestmark = pytest.mark.usefixtures("few_replications")


def beside(*labels: str, **state: Any) -> Any:
    at = page_test("explore")
    for name, value in {"requests": 60, POLICIES_KEY: list(labels), **state}.items():
        at.session_state[name] = value
    return at.run(timeout=180)


def by_policy(at: Any) -> pd.DataFrame:
    """Return the table of the page with a row per policy, by its name without places to break."""
    shown: pd.DataFrame = at.table[0].value.T
    return shown.rename(index=lambda name: name.replace("\u200b", ""))


def test_policies_stand_beside_the_scenario_in_table_chart_and_words() -> None:
    at = beside("static+contiguous", "chunked")
    assert not at.exception
    values = by_policy(at)
    assert list(values.index) == ["this scenario", escaped("static+contiguous"), "chunked"]
    assert values["TTFT p90, s"].str.contains("[", regex=False).all()
    assert values["TTFT p90, s"].str.contains("; ").tolist() == [False, True, True]
    assert any("faster" in m.value for m in at.markdown)
    (limits,) = (m.value for m in at.markdown if "/s this scenario" in m.value)
    assert len(limits.splitlines()) == 5, "a line each"
    assert "meets the SLO" in limits


def test_a_recorded_trace_has_no_brackets_and_the_reason_once() -> None:
    at = beside("static", requests=None, workload="sample", efficiency=CERTAIN)
    assert not at.exception
    assert not at.table[0].value.astype(str).map(lambda cell: "[" in cell).any().any()
    captions = [caption.value for caption in at.caption]
    assert sum(said.startswith("No intervals: a recorded trace") for said in captions) == 1
    assert not any("90 % interval" in said for said in captions)


def test_a_bad_label_is_one_line_and_the_others_stay() -> None:
    at = beside("vllm-v2", "chunked")
    assert len(at.error) == 1
    assert "did you mean 'vllm-v1'" in at.error[0].value
    assert len(at.table[0].value.columns) == 2


def test_a_cache_that_cannot_hit_makes_no_difference_that_could_be_read() -> None:
    at = beside("chunked+paged+prefix", "static", batching="chunked", kv="paged")
    assert not at.exception
    caching = escaped("chunked+paged+prefix")
    assert by_policy(at).loc[caching].str.endswith(CANNOT_TELL).all()
    assert not by_policy(at).loc["static"].str.endswith(CANNOT_TELL).any()
    assert at.info[0].value.startswith(caching)
    assert "**Shared prefix, tokens**" in at.info[0].value
    at.session_state["shared_prefix_tokens"] = 64
    at.run()
    assert not at.info
    assert not by_policy(at).loc[caching].str.endswith(CANNOT_TELL).any()


@pytest.mark.slow
@pytest.mark.browser
def test_the_link_of_a_request_explains_it_under_that_policy(user: Browser) -> None:
    file = scenario_under(parse_scenario("workload: {requests: 60}", "t"), "static")
    links = links_to_why(file, ["generated:7"])
    assert links
    user.open(links[0], "Why")
    expect(user.page.get_by_label("Request to explain")).to_have_value("generated:7")
    expect(user.page.get_by_label("Requests", exact=True)).to_have_value("60")
    user.assert_sound()
