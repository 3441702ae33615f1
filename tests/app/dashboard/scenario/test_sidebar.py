"""The scenario at the side: controls there and back, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given

from servetwin.app.dashboard.formatting import escaped
from servetwin.app.dashboard.scenario import sidebar
from servetwin.app.dashboard.scenario.controls import OWN, as_controls, changes, from_controls
from servetwin.app.scenario.files.scenario_file import ScenarioFile, parse_scenario
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.reading import sample_path
from tests.support.dashboard_app import (
    Browser,
    Chromium,
    ServedDashboard,
    expect,
    page_test,
    user_of,
)
from tests.support.scenario_strategies import scenarios

PHI = "deployment: {model: phi-4, gpu: h100"


@given(scenarios())
def test_controls_keep_a_scenario(scenario: ScenarioFile) -> None:
    assert from_controls(as_controls(scenario)) == scenario


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policies: {batching: '/srv/mine.py:Mine'}", "batching: '/srv/mine.py:Mine' is not offer"),
        ("policies: {kv: 'mine.py:Memory'}", "kv: 'mine.py:Memory' is not offered here"),
        ("policies: {eviction: 'mine.py:E'}", "eviction: 'mine.py:E' is not offered here"),
        ("deployment: {profile: 'mine.py:S'}", "profile: 'mine.py:S' is not offered here"),
        ("workload: {arrivals: 'mine.py:A'}", "workload.arrivals: 'mine.py:A': known are"),
        (f"{PHI}, techniques: 'mine.py:T'}}", "techniques: 'mine.py:T' names a file"),
        (f"{PHI}, techniques: 'prefix-cache:eviction=mine.py:E'}}", "mine.py:E' names a file"),
        ("cluster: {router: 'mine.py:R'}", "router: 'mine.py:R' is not offered here"),
        ("cluster: {decode_router: 'mine.py:R'}", "'mine.py:R' is not offered here"),
        ("deployment: {profile: ../../x.json}", "profile: '../../x.json' is not offered here"),
        ("deployment: {model: /etc/config.json, gpu: h100}", "model: '/etc/config.json' is not"),
        ("deployment: {model: llama-2-7b, gpu: x.json}", "gpu: 'x.json' is not offered here"),
        (f"{PHI}, without: 'cascade:small=/x.json'}}", "'cascade:small=/x.json' names a file"),
        ("deployment: {model: a/../b, gpu: h100}", "model: 'a/../b' is not offered here"),
        (f"{PHI}, server: 'vllm serve m --config /x'}}", "/x' is not offered here; name it with"),
        (f"{PHI}, times: 'layers:/x'}}", "times: 'layers:/x' is not offered here"),
        (f"{PHI}, link: /x.csv}}", "link: '/x.csv' is not offered here"),
        (f"{PHI}, times: kernels, overheads: fitted}}", "deployment.overheads: has no control"),
        ("preset: vllm", "preset: 'vllm' cannot be shown here"),
        ("workload: {rate_per_s: 900}", "rate: 900.0 cannot be shown here"),
        ("workload: {requests: 5000000}", "requests: 5000000 cannot be shown here"),
    ],
)
def test_what_a_browser_may_not_ask_for_is_refused(text: str, message: str) -> None:
    with pytest.raises(ServetwinError) as error:
        as_controls(parse_scenario(text, "s.yaml"))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("queue_order", "more settings: 'queue_order' is not KEY=VALUE"),
        ("queue_oder=sjf", "did you mean 'queue_order'?"),
        ("queue_order=lifo", "policies.queue_order: 'lifo'"),
        ("batching=mine.py:X", "more settings: batching has a control of its own"),
        ("decode_router=mine.py:X", "'mine.py:X' is not offered here"),
    ],
)
def test_bad_settings_are_named(more: str, message: str) -> None:
    with pytest.raises(ServetwinError) as error:
        from_controls({**as_controls(ScenarioFile()), "set": more})
    assert message in str(error.value)


def test_changes_are_by_control() -> None:
    after = parse_scenario("workload: {rate_per_s: 20}\npolicies: {max_seqs: 8}", "s")
    assert changes(ScenarioFile(), after) == {"rate": (10.0, 20.0), "max_seqs": (None, 8)}


def test_own_settings_are_those_of_server_and_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidebar, "shown_scenario", lambda: ScenarioFile(preset="tgi"))
    found = sidebar.own_settings()
    assert (found["max_seqs"], found["batching"], found["replicas"]) == (256, "prefill-first", 1)
    broken = ScenarioFile.model_validate(
        {"deployment": {"model": "llama-3-70b", "gpu": "h100"}}
    )  # its weights do not fit
    monkeypatch.setattr(sidebar, "shown_scenario", lambda: broken)
    assert sidebar.own_settings() == {}


def sample() -> bytes:
    with sample_path() as path:
        return Path(path).read_bytes()


def test_own_values_are_the_placeholders() -> None:
    at = page_test("why")
    at.session_state["requests"] = 20
    at.run()
    (places,) = (w for w in at.number_input if w.key == "max_seqs")
    assert places.placeholder == "256 (server default)"
    assert places.value is None


def test_a_model_takes_a_layout_that_holds_it_and_its_best_evidence() -> None:
    at = page_test("why")
    at.session_state["requests"] = 20
    at.run()
    assert "link" not in at.session_state
    at.selectbox(key="model").set_value("deepseek-v3")
    at.selectbox(key="gpu").set_value("h200").run()
    shown = {name: at.session_state[name] for name in ("layout", "times", "link")}
    assert shown == {"layout": "tp=8", "times": OWN, "link": OWN}
    at.selectbox(key="gpu").set_value("l4").run()
    assert any("a smaller format" in caption.value for caption in at.sidebar.caption)
    assert not at.exception


def test_what_cannot_be_is_one_line_on_the_page() -> None:
    at = page_test("why")
    at.session_state["requests"] = 20
    at.session_state["set"] = "queue_oder=sjf"
    at.run()
    assert [e.value for e in at.error] == [
        escaped("more settings: unknown setting 'queue_oder'; did you mean 'queue_order'?")
    ]
    assert not at.exception


def test_reset_shows_the_default() -> None:
    at = page_test("why")
    at.session_state["requests"] = 20
    at.session_state["max_seqs"] = 3
    at.run()
    next(b for b in at.button if b.label == "Reset to the default").click().run()
    assert at.session_state["requests"] is None
    assert at.session_state["max_seqs"] is None


@pytest.mark.slow
@pytest.mark.browser
def test_yaml_goes_down_and_up_again_twice(user: Browser, tmp_path: Path) -> None:
    user.open("why?requests=100&rate=20&max_seqs=64", "Why")
    page, path = user.page, tmp_path / "s.yaml"
    page.get_by_test_id("stSidebar").get_by_text("Scenario file", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download YAML").click()
    download.value.save_as(path)
    expected = parse_scenario(
        "workload: {requests: 100, rate_per_s: 20}\npolicies: {max_seqs: 64}", "s"
    )
    assert parse_scenario(path.read_text(), "s") == expected
    for _ in range(2):
        user.press("Reset to the default")
        requests = page.get_by_label("Requests", exact=True)
        expect(requests).to_have_value("")
        expect(requests).to_have_attribute("placeholder", "2,000")
        user.upload(path, 1)
        expect(page.get_by_label("Requests", exact=True)).to_have_value("100")
        page.wait_for_url("**max_seqs=64**")
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_bad_files_say_why_beside_their_widget_and_good_ones_are_taken_after(
    user: Browser, tmp_path: Path
) -> None:
    user.open("why?requests=100", "Why")
    page, sidebar = user.page, user.page.get_by_test_id("stSidebar")
    trace, scenario = tmp_path / "mine_[x].csv", tmp_path / "s.yaml"
    trace.write_text("no trace\n")
    scenario.write_text("policies: {batching: '/srv/mine.py:Mine'}")
    user.upload(trace, 0)
    expect(sidebar.get_by_text("mine_[x].csv:1: field 'row': no known trace")).to_be_visible()
    sidebar.get_by_text("Scenario file", exact=True).click()
    user.upload(scenario, 1)
    expect(sidebar.get_by_text("'/srv/mine.py:Mine' is not offered here")).to_be_visible()
    trace.write_bytes(sample())
    user.upload(trace, 0)
    expect(sidebar.get_by_text("240 requests")).to_be_visible()
    page.wait_for_url("**workload=mine_**")
    expect(sidebar.get_by_text("no known trace")).to_have_count(0)
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_a_broken_link_says_so_and_offers_the_default(user: Browser) -> None:
    user.open("why?rate=fast&requests=100&foo=1&batching=chunkd", "Why")
    page = user.page
    for said in ("'fast': input should be", "foo: no such setting", "batching: 'chunkd'"):
        expect(page.get_by_test_id("stAlert").first).to_contain_text(said)
    expect(page.get_by_label("Requests", exact=True)).to_have_value("100")
    user.press("Use the default scenario")
    requests = page.get_by_label("Requests", exact=True)
    expect(requests).to_have_value("")
    expect(requests).to_have_attribute("placeholder", "2,000")
    expect(page.get_by_text("Part of this link cannot be used")).to_have_count(0)
    user.assert_sound()


@pytest.mark.slow
@pytest.mark.browser
def test_two_users_do_not_see_each_others_scenario(
    user: Browser, dashboard: ServedDashboard, chromium: Chromium
) -> None:
    user.open("why?requests=100&rate=20", "Why")
    with user_of(dashboard, chromium) as other:
        other.open("why?requests=50", "Why")
        for each, requests in ((user, "100"), (other, "50")):
            expect(each.page.get_by_label("Requests", exact=True)).to_have_value(requests)
