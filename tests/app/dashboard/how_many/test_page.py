"""The page How many: its question, its answer while it is found, and the page in a browser."""

import re
import time
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
from tests.support.dashboard_app import Browser, expect, page_test


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servetwin.app.dashboard.how_many.page.REPLICATIONS", 3)


def to_the_end(at: Any) -> Any:
    for _ in range(300):
        at.run()
        jobs = at.session_state["jobs"]
        if all(
            name in jobs and not jobs[name].is_running for name in ("how_many", "how_many_draws")
        ):
            return at.run()
        time.sleep(0.1)
    raise AssertionError("the search did not end")


def opened(**state: Any) -> Any:
    at = page_test("how_many")
    for name, value in {"requests": 200, **state}.items():
        at.session_state[name] = value
    return at.run()


def test_the_page_opens_with_an_answer_in_one_sentence_and_a_table() -> None:
    at = to_the_end(opened(how_many_rate=140.0))
    assert not at.exception
    assert not at.error
    said = at.subheader[0].value
    assert re.match(
        r"\d+ H100s? holds? p99 TTFT below 500 ms for these requests at 140 per s", said
    )
    assert "3 resampled traffic traces" in at.markdown[0].value
    (row,) = at.dataframe[0].value.to_dict("records")
    assert row["GPUs"] == said.split()[0]
    before = at.session_state["jobs"]["how_many_draws"]
    at.run()
    assert at.session_state["jobs"]["how_many_draws"] is before, "nothing begins anew"


def test_candidates_and_prices_decide_which_is_best() -> None:
    at = to_the_end(
        opened(
            how_many_rate=100.0,
            times="sheet",
            model="llama-3.1-8b",
            how_many_servers=["llama-3.1-8b on h100", "llama-3.1-8b on l40s"],
            how_many_price="h100=100, l40s=0.01",
        )
    )
    assert re.match(r"llama-3.1-8b on l40s\\: \d+ L40S hold p99", at.subheader[0].value)
    costs = {
        row["candidate"]: float(row["cost per hour"])
        for row in at.dataframe[0].value.to_dict("records")
    }
    assert costs["llama-3.1-8b on l40s"] < 1 < costs["llama-3.1-8b on h100"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"how_many_price": "cheap"}, "no price"),
        ({"how_many_metric": "E2E latency"}, "no limit"),
        ({"how_many_policies": ["statik"]}, "statik"),
        ({"how_many_what": "users", "how_many_think": "long"}, "long"),
        ({"requests": 40}, "40 requests cannot tell what 99"),
    ],
)
def test_bad_input_is_one_error_and_no_answer(state: dict[str, Any], said: str) -> None:
    at = opened(**state)
    for _ in range(100):
        if at.error:
            break
        time.sleep(0.1)
        at.run()
    assert not at.exception
    assert said in at.error[0].value.replace("\\", "")


def test_an_untouched_scenario_is_an_example_and_says_so() -> None:
    at = page_test("how_many").run()
    assert at.info[0].value.startswith(
        "An example: the default scenario at 140 requests per second"
    )
    at.number_input(key="how_many_rate").set_value(20.0).run()
    assert not at.info


@pytest.mark.slow
@pytest.mark.browser
def test_from_the_page_to_the_number_of_gpus_and_of_users(user: Browser) -> None:
    """Of a server with few places, which a few users fill: the search is short."""
    user.open("how-many?requests=200&max_seqs=4&how_many_rate=10", "How many")
    user.await_heading("H100s hold p99 TTFT below 500 ms")
    page = user.page
    expect(page.get_by_text(re.compile(r"\d+ resampled traffic traces"))).to_be_visible()
    user.act(page.get_by_text("users", exact=True).click)
    user.await_heading("users at a time are served with p99 TTFT below 500 ms by 1 H100")
    assert "how_many_what=users" in page.url
    user.assert_sound()
