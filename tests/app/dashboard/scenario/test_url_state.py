"""Links: what is wrong with broken ones, and that good ones restore the scenario."""

from urllib.parse import parse_qs

import pytest
from hypothesis import given

from servetwin.app.dashboard.formatting import plain
from servetwin.app.dashboard.scenario.controls import CONTROLS, PAGE_CONTROLS, as_controls
from servetwin.app.dashboard.scenario.url_state import problems, query_of
from servetwin.app.scenario.files.scenario_file import ScenarioFile, parse_scenario
from tests.support.dashboard_app import Browser, expect, page_test
from tests.support.scenario_strategies import scenarios

WORKLOADS = ("generated", "sample", "own.csv")


@pytest.mark.parametrize(
    ("key", "values", "problem"),
    [
        ("rat", ["3"], "`rat`: no such setting; did you mean 'rate'?"),
        ("foo", ["3"], "`foo`: no such setting; it is left out"),
        ("<b>x*", ["3"], "`?b?x?`: no such setting; it is left out"),
        ("rate", ["fast"], "`rate`: 'fast': input should be a valid number"),
        ("rate", ["1000"], "`rate`: '1000': input should be less than or equal to 200"),
        ("rate", ["nan"], "`rate`: 'nan': input should be"),
        ("requests", ["1.5"], "`requests`: '1.5': input should be a valid integer"),
        ("batching", ["/etc/passwd.py:X"], "`batching`: '?etc?passwd.py:X': input should be"),
        ("kv", ["mine.py:Memory"], "`kv`: 'mine.py:Memory': input should be"),
        ("times", ["../x.json"], "`times`: '..?x.json': input should be"),
        ("own_rate", ["perhaps"], "`own_rate`: 'perhaps': input should be a valid boolean"),
        ("workload", ["gone.csv"], "`workload`: the trace 'gone.csv' is not here; upload it"),
        ("rate", ["1e309"], "`rate`: '1e309': input should be less than or equal to 200"),
        ("rate", ["1", "2"], "`rate`: '1, 2': given 2 times; once is right"),
        ("batching", ["x" * 10_000], "`batching`: 10,000 characters; at most 2,000"),
        ("techniques", ["x" * 10_000], "`techniques`: 10,000 characters; at most 2,000"),
        ("why_window", ["1", "inf?"], "`why_window`: '1, inf?': input should be"),
    ],
)
def test_a_broken_link_says_what_is_wrong(key: str, values: list[str], problem: str) -> None:
    found = problems({key: values}, WORKLOADS)
    assert found.keys() == {key}
    assert found[key].startswith(problem)


@pytest.mark.parametrize(
    "link",
    [
        {"rate": ["12.5"], "batching": ["chunked"], "max_seqs": ["64"]},
        {"workload": ["own.csv"], "own_rate": ["true"]},
        {"techniques": ["weight-int4", "tensor-parallel:ways=2"], "times": ["sheet"]},
        {"model": ["deepseek-v3"], "gpu": ["h200"], "layout": ["tp=8,ep=8"], "server": ["vllm"]},
        {"ttft_ms": [""], "e2e_ms": ["2000"]},
        {"set": ["queue_order=sjf watermark=0.01"], "seed": ["7"]},
        {"set": ["draft_rows=3"], "batching": ["continuous"], "max_seqs": ["8"]},
        {"compared": ["sglang"]},
        {},
    ],
)
def test_a_good_link_has_no_problem(link: dict[str, list[str]]) -> None:
    assert problems(link, WORKLOADS) == {}


def test_pages_do_not_shadow_the_scenario() -> None:
    assert not PAGE_CONTROLS.keys() & CONTROLS.keys()


@given(scenarios())
def test_the_query_of_a_scenario_holds_what_differs(scenario: ScenarioFile) -> None:
    found = parse_qs(query_of(scenario), keep_blank_values=True)
    assert problems(found, WORKLOADS) == {}
    defaults = as_controls(ScenarioFile())
    assert found.keys() == {k for k, v in as_controls(scenario).items() if v != defaults[k]}


def test_a_page_may_add_to_the_query() -> None:
    file = parse_scenario("workload: {rate_per_s: 20}", "test")
    assert query_of(file, why_request="a b") == "rate=20.0&why_request=a+b"
    assert query_of(ScenarioFile()) == ""


def test_the_page_says_what_of_the_link_it_leaves_out_until_it_is_told_to_forget() -> None:
    at = page_test("why")
    at.query_params["rate"] = "fast"
    at.query_params["requests"] = "100"
    at.run()
    assert "`rate`: 'fast'" in at.warning[0].value
    assert at.session_state["requests"] == 100
    assert at.session_state["rate"] == 10.0
    next(b for b in at.button if b.label == "Use the default scenario").click().run()
    assert not at.warning
    assert at.session_state["requests"] is None
    assert not at.exception


BROKEN = {
    "rate": "1e309", "requests": "1e309", "seed": "-1e309", "max_seqs": "nan", "kv_tokens": "1e309",
    "cv": "nan", "ttft_ms": "-inf", "prompt_tokens": "9" * 10_000, "replicas": "0x10",
    "output_cv": "\uff11\uff12", "own_rate": "maybe", "workload": "../../etc/passwd",
    "arrivals": "\0", "batching": "x" * 10_000, "router": "%ff", "preset": "eyJwcmVzZXQi=",
    "percentile": "101", "prefix_share": "1", "conversations": "maybe", "latencies": "p98",
    "plan_price": "x" * 10_000, "plan_rate": "nan", "unheard_of": "1", "<b>*": "",
}  # fmt: skip
"""A value for each kind of control, none of which it can take."""


def test_faulty_values_fall_back_to_the_default_and_the_page_names_them() -> None:
    at = page_test("why")
    at.query_params.update({**BROKEN, "kv": "contiguous"})
    at.query_params["rate"] = ["7", "8"]
    at.run()
    assert not at.exception
    assert all(plain(key) in at.warning[0].value for key in BROKEN)
    assert at.warning[0].value.count("\n- ") == len(BROKEN)
    assert not BROKEN.keys() & at.query_params.keys()
    defaults = as_controls(ScenarioFile())
    shown = {name: at.session_state[name] for name in defaults if name in at.session_state}
    assert shown == {name: defaults[name] for name in shown} | {"kv": "contiguous"}


@pytest.mark.slow
@pytest.mark.browser
def test_a_user_may_go_back_to_a_faulty_link(user: Browser) -> None:
    user.open("why?requests=1e309&seed=7", "Why")
    user.act(lambda: user.page.go_back(wait_until="commit"))
    expect(user.page.get_by_test_id("stAlert").first).to_contain_text("'1e309'")
    requests = user.page.get_by_label("Requests", exact=True)
    expect(requests).to_have_value("")
    expect(requests).to_have_attribute("placeholder", "2,000")
    user.assert_sound()
