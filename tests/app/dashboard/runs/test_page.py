"""The page Runs: what lies in the folder, what may be done with it, and what may not."""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")

from app import figures
from app.dashboard.scenario import allowed_choices as offers
from app.dashboard.kept_runs import folder as runs_folder
from app.dashboard.kept_runs.folder import child, delete, new_child, zip_problem, zipped
from app.dashboard.runs.listing import listed_runs, runs_table
from app.dashboard.kept_runs.opened_runs import drawn, facts, latency_frame, opened
from app.dashboard.kept_runs.saved_scenario import FILE, rebuilt, save_run
from app.dashboard.simulations import SimulatedScenario
from app.scenario.scenario_file import SAMPLE, ScenarioFile, parse_scenario
from sim.records.metrics import SLO
from sim.experiments.predict import run_once
from sim.records.run import RunError, load_run
from tests.support.dashboard_app import Browser, browser, page_test, served_dashboard
from tests.support.figure_frames import load_test
from workloads.errors import ServetwinError
from workloads.sample import sample_trace

FILE_OF_TEST = parse_scenario(
    "workload: {requests: 30, rate_per_s: 20}\n"
    "server: {model: llama-2-7b, hardware: a100-80gb, techniques: [weight-int4]}\n"
    "policies: {max_seqs: 8}\nseed: 3",
    "test",
)


def outcome(file: ScenarioFile = FILE_OF_TEST) -> SimulatedScenario:
    trace = file.workload.trace(file.seed)
    scenario = file.build(trace)
    run = run_once(trace, scenario, seed=file.seed, keep_usage=True)
    return SimulatedScenario(file, "", trace, scenario, run, run.summary(file.slo.slo()))


@pytest.fixture(scope="module")
def simulate() -> SimulatedScenario:
    return outcome()


@pytest.fixture
def root(tmp_path: Path, simulated: SimulatedScenario) -> Path:
    """A folder of runs with one run, one load test, a group, and what is neither."""
    folder = tmp_path / "runs"
    save_run(folder, "mine", simulated)
    load_test().save(folder / "measured")
    load_test().save(folder / "group" / "one")
    load_test().save(folder / "group" / "two")
    (folder / "foreign").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "meta.json").write_text("{")
    load_test().save(folder / "newer")
    meta = {"kind": "hologram"}
    (folder / "newer" / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("private")
    (folder / "link").symlink_to(tmp_path / "secret")
    load_test().save(folder / "holds-link")
    (folder / "holds-link" / "inner").symlink_to(tmp_path / "secret")
    return folder


def test_runs_are_listed_and_what_is_none_says_why(root: Path) -> None:
    listed = {run.name: run for run in listed_runs(root)}
    table = runs_table([run for run in listed.values() if not run.problem]).set_index("name")
    assert table["kind"].to_dict() == {
        "mine": "simulation of continuous+paged",
        "measured": "load test of base",
        "group": "folder of 2 runs",
    }
    assert table.loc["mine", "requests"] == 30
    ttft = load_run(root / "mine").summary()["ttft_s"]["p90"]
    assert table.loc["mine", "TTFT p90, ms"] == pytest.approx(1e3 * ttft)
    problems = {name: run.problem for name, run in listed.items() if run.problem}
    assert problems["foreign"] == "foreign: neither a run nor a folder of runs"
    assert problems["broken"].startswith("broken: not a readable run folder (")
    assert "kind 'hologram'" in problems["newer"]
    assert problems["link"] == "link: a link; links are not followed"
    assert "holds a link (holds-link/inner)" in problems["holds-link"]
    assert all("\n" not in problem for problem in problems.values())
    assert listed_runs(root / "no-such") == []


BAD_NAMES = ["", ".", "..", "../secret", "a/b", "/etc", "./mine", "mine/", "no-such", "link"]
DOINGS: dict[str, Callable[[Path, str], Any]] = {
    "child": child, "delete": delete, "zip": zipped, "size": zip_problem,
    "open": lambda root, name: opened(root, (name,)),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("doing", DOINGS)
def test_nothing_outside_the_folder_is_touched(root: Path, doing: str, name: str) -> None:
    with pytest.raises(RunError):
        DOINGS[doing](root, name)
    assert (root.parent / "secret" / "key").read_text() == "private"
    assert (root / "mine" / "summary.json").exists()


@given(st.text(max_size=12))
def test_no_name_leads_out(name: str) -> None:
    root = Path("/no/such/root")
    with pytest.raises((RunError, ValueError)):
        child(root, name)
    try:
        path = new_child(root, name)
    except RunError:
        return
    assert path.parent == root
    assert path.resolve().parent == root.resolve()


def test_a_run_that_holds_a_link_is_not_read_but_can_be_deleted(root: Path) -> None:
    for doing in ("child", "zip", "open"):
        with pytest.raises(RunError, match="holds a link"):
            DOINGS[doing](root, "holds-link")
    delete(root, "holds-link")
    assert not (root / "holds-link").exists()
    assert (root.parent / "secret" / "key").exists()


def test_a_zip_holds_the_folder_and_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(BytesIO(zipped(root, "mine"))) as archive:
        names = archive.namelist()
        assert archive.read("mine/scenario.yaml") == (root / "mine/scenario.yaml").read_bytes()
    assert set(names) == {f"mine/{file.name}" for file in (root / "mine").iterdir()}
    monkeypatch.setattr(runs_folder, "MOST_ZIP_BYTES", 100)
    assert "too much for a download" in (zip_problem(root, "mine") or "")
    with pytest.raises(RunError, match="too much for a download"):
        zipped(root, "mine")


@pytest.mark.parametrize(
    ("name", "said"),
    [("mine", "one of that name already"), ("link", "already"), ("a b", "letters, digits"),
     ("../x", "letters, digits"), (".hidden", "first"), ("x" * 81, "up to 80"), ("", "up to 80")],
)  # fmt: skip
def test_a_run_is_saved_under_a_new_plain_name_only(
    root: Path, simulated: SimulatedScenario, name: str, said: str
) -> None:
    with pytest.raises(RunError, match=said):
        save_run(root, name, simulated)


def test_what_is_saved_is_what_replay_keeps(root: Path, simulated: SimulatedScenario) -> None:
    run = load_run(root / "mine")
    pd.testing.assert_frame_equal(run.requests, simulated.run.requests)
    assert run.scenario.keys() >= {"trace", "notes", "model", "policies", "cluster", "seed"}
    assert run.scenario["techniques"] == ["weight-int4"]
    assert "python" in run.meta
    assert not simulated.run.scenario, "the shared outcome is as it was"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "workload: {source: sample, rate_per_s: null}\nserver: {profile: base-cpu}",
        "preset: vllm-v1\ncluster: {replicas: 2, router: least-tokens}\nslo: {ttft_ms: null}",
    ],
)
def test_a_saved_run_opens_as_the_scenario_that_it_was(tmp_path: Path, text: str) -> None:
    file = parse_scenario(text, "test")
    file = file.model_copy(update={"workload": file.workload.model_copy(update={"requests": 20})})
    folder = save_run(tmp_path, "run", outcome(file))
    found, note = rebuilt(load_run(folder).scenario, FILE_OF_TEST)
    assert (found, note) == (file, "")


def test_a_run_of_the_command_line_opens_with_its_server_and_policies(root: Path) -> None:
    record = load_run(root / "mine").scenario
    del record[FILE]
    found, note = rebuilt(record, ScenarioFile())
    assert found.server == FILE_OF_TEST.server
    assert (found.policies["max_seqs"], found.seed) == (8, 3)
    assert found.workload == ScenarioFile().workload
    assert "does not keep its trace (generated)" in note
    trace = found.workload.trace(0)
    assert found.build(trace).policies.max_seqs == 8
    sample = {**record, "notes": [*sample_trace().notes, "scaled"]}
    assert rebuilt(sample, ScenarioFile())[0].workload.source == SAMPLE
    mine = {**record, "trace": "/some/where/mine.csv"}
    assert rebuilt(mine, ScenarioFile(), ["mine.csv"])[0].workload.source == "mine.csv"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tables": ["ops.csv"]}, "rests on tables"),
        (
            {"model": None, "hardware": None, "techniques": [], "profile": ["base-cpu", "x"]},
            "pools",
        ),
        ({"model": None, "hardware": None, "techniques": [], "profile": "/x.json"}, "not offered"),
        ({"model": "/etc/passwd"}, "not offered"),
        ({"techniques": ["speculative:draft=/etc/passwd"]}, "names a file"),
        ({"policies": {"batching": "evil.py:Run"}}, "not offered"),
        ({"cluster": {"router": "evil.py:Run"}}, "not offered"),
        ({"policies": {"colour": "blue"}}, "unknown key"),
        ({FILE: {"policies": {"kv": "evil.py:Run"}}}, "not offered"),
        ({FILE: {"colour": "blue"}}, "unknown key"),
    ],
)
def test_what_cannot_be_opened_as_a_scenario_says_why(
    root: Path, change: dict[str, Any], said: str
) -> None:
    record = load_run(root / "mine").scenario
    if FILE not in change:
        del record[FILE]
    with pytest.raises(ServetwinError, match=said):
        rebuilt({**record, **change}, ScenarioFile())


def test_a_load_test_is_no_scenario(root: Path) -> None:
    record = load_run(root / "measured").scenario
    with pytest.raises(RunError, match="a load test does not know"):
        rebuilt(record, ScenarioFile())
    with pytest.raises(RunError, match="another version"):
        rebuilt({"trace": "x"}, ScenarioFile())


def test_an_opened_run_has_its_tables_and_charts(root: Path) -> None:
    (named,), trials = opened(root, ("mine",))
    assert trials == []
    titles = [title for title, figure in drawn(named, SLO(ttft_s=0.5)) if figures.alt_text(figure)]
    assert titles[:2] == ["TTFT", "TPOT"]
    assert {"The server over time", "KV memory, mean over the run", "Requests"} <= set(titles)
    table = latency_frame(named.run).set_index("metric")
    assert table.loc["TTFT, ms", "p90"] == pytest.approx(1e3 * named.run.summary()["ttft_s"]["p90"])
    lines = facts(named.run)
    assert "llama-2-7b on a100-80gb with weight-int4" in lines[0]
    assert lines[1] == "30 requests: 30 finished"
    (measured,), _ = opened(root, ("measured",))
    assert "Chunk gaps (ITL)" in [title for title, _ in drawn(measured, SLO())]


def test_a_run_is_read_again_when_it_has_changed(root: Path) -> None:
    (before,), _ = opened(root, ("mine",))
    assert opened(root, ("mine",))[0][0] is before
    scenario = yaml.safe_load((root / "mine/scenario.yaml").read_text())
    (root / "mine/scenario.yaml").write_text(yaml.safe_dump({**scenario, "seed": 77}))
    (after,), _ = opened(root, ("mine",))
    assert after.run.scenario["seed"] == 77


@pytest.fixture
def at(root: Path) -> Iterator[Any]:
    """The page on that folder."""
    with patch.object(offers, "additions", lambda: replace(offers.Additions(), runs=str(root))):
        test = page_test("runs")
        test.session_state["requests"] = 40
        yield test.run()


def press(at: Any, label: str) -> None:
    next(button for button in at.button if button.label == label).click().run()
    assert not at.exception


def test_the_scenario_at_the_side_is_saved_and_opened(at: Any, root: Path) -> None:
    assert at.title[0].value == "Runs"
    at.text_input(key="runs_name").set_value("new-one").run()
    press(at, "Simulate and save")
    assert at.success[0].value == "saved as new\\-one" or "new-one" in at.success[0].value
    assert at.session_state["runs_open"] == "new-one"
    assert len(load_run(root / "new-one").requests) == 40
    press(at, "Simulate and save")
    assert "already" in at.error[0].value


def test_a_run_is_deleted_after_a_second_press(at: Any, root: Path) -> None:
    at.selectbox(key="runs_open").set_value("measured").run()
    press(at, "Delete for good")
    assert not (root / "measured").exists()
    assert "measured is deleted" in at.success[0].value
    assert at.session_state["runs_open"] is None


@pytest.mark.parametrize(
    ("name", "said"), [("broken", "not a readable run folder"), ("link", "a link")]
)
def test_a_broken_run_is_one_line(at: Any, name: str, said: str) -> None:
    at.selectbox(key="runs_open").set_value(name).run()
    assert not at.exception
    assert said in at.error[0].value.replace("\\", "")


def test_a_run_becomes_the_scenario_at_the_side(at: Any) -> None:
    at.selectbox(key="runs_open").set_value("mine").run()
    press(at, "Open as scenario")
    assert at.session_state["model"] == "llama-2-7b"
    assert at.session_state["max_seqs"] == 8
    assert at.session_state["rate"] == 20


def test_a_folder_of_runs_offers_each_of_them(at: Any) -> None:
    at.selectbox(key="runs_open").set_value("group").run()
    assert at.selectbox(key="runs_in_group").options == ["group/one", "group/two"]
    assert "Cannot be opened as a scenario" in "".join(c.value for c in at.caption)


@pytest.mark.browser
def test_saved_downloaded_reported_and_deleted_in_a_browser(tmp_path: Path) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    with served_dashboard(tmp_path) as url, browser(url) as chromium:
        chromium.open("runs?requests=50", "Runs")
        page = chromium.page
        page.get_by_text("Save the scenario at the side as a run").click()
        page.get_by_label("Name of the run").fill("mine")
        page.get_by_label("Name of the run").press("Enter")
        chromium.settle()
        page.get_by_role("button", name="Simulate and save").click()
        expect(page.get_by_text("saved as mine")).to_be_visible(timeout=30_000)
        page.wait_for_url("**runs_open=mine**")
        chromium.settle()
        assert downloaded(chromium, "Folder as zip")[:2] == b"PK"
        assert downloaded(chromium, "Report as HTML").startswith(b"<!DOCTYPE html>")
        page.get_by_role("button", name="Delete ...").click()
        page.get_by_role("button", name="Delete for good").click()
        expect(page.get_by_text("mine is deleted")).to_be_visible(timeout=30_000)
        assert list((tmp_path / "runs").iterdir()) == []
        chromium.assert_sound()


def downloaded(chromium: Browser, label: str) -> bytes:
    with chromium.page.expect_download(timeout=60_000) as found:
        chromium.page.get_by_role("button", name=label).click()
    return Path(found.value.path()).read_bytes()
