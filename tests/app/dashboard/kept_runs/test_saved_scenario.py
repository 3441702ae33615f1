"""Scenarios saved as runs, and runs opened as scenarios."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.kept_runs.saved_scenario import FILE, rebuilt, save_run
from servetwin.app.scenario.files.scenario_file import SAMPLE, ScenarioFile, parse_scenario
from servetwin.sim.records.run import RunError, load_run
from servetwin.workloads.errors import ServetwinError
from servetwin.workloads.reading import sample_trace
from tests.support.dashboard_runs import QUANTISED, quantised, simulated_scenario


@pytest.mark.parametrize(
    ("name", "said"),
    [("mine", "one of that name already"), ("link", "already"), ("a b", "letters, digits"),
     ("../x", "letters, digits"), (".hidden", "first"), ("x" * 81, "up to 80"), ("", "up to 80")],
)  # fmt: skip
def test_a_run_is_saved_under_a_new_plain_name_only(root: Path, name: str, said: str) -> None:
    with pytest.raises(RunError, match=said):
        save_run(root, name, quantised())


def test_what_is_saved_is_what_replay_keeps(root: Path) -> None:
    run = load_run(root / "mine")
    pd.testing.assert_frame_equal(run.requests, quantised().run.requests)
    assert run.scenario.keys() >= {"trace", "notes", "model", "policies", "cluster", "seed"}
    assert run.scenario["techniques"] == ["weight-int4"]
    assert "python" in run.meta
    assert not quantised().run.scenario, "the shared outcome is as it was"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "workload: {source: sample, rate_per_s: null}\ndeployment: {profile: base-cpu}",
        "preset: vllm-v1\ncluster: {replicas: 2, router: least-tokens}\nslo: {ttft_ms: null}",
    ],
)
def test_a_saved_run_opens_as_the_scenario_that_it_was(tmp_path: Path, text: str) -> None:
    file = parse_scenario(text, "test")
    file = file.model_copy(update={"workload": file.workload.model_copy(update={"requests": 20})})
    folder = save_run(tmp_path, "run", simulated_scenario(file))
    found, note = rebuilt(load_run(folder).scenario, QUANTISED)
    assert (found, note) == (file, "")


def test_a_run_of_the_command_line_opens_with_its_server_and_policies(root: Path) -> None:
    record = load_run(root / "mine").scenario
    del record[FILE]
    found, note = rebuilt(record, ScenarioFile())
    assert found.deployment == QUANTISED.deployment
    assert (found.policies["max_seqs"], found.seed) == (8, 3)
    assert found.workload == ScenarioFile().workload
    assert "does not keep its trace (generated)" in note
    trace = found.workload.trace(0)
    assert found.build(trace).policies.max_seqs == 8
    sample = {**record, "notes": [*sample_trace().notes, "scaled"]}
    assert rebuilt(sample, ScenarioFile())[0].workload.source == SAMPLE
    mine = {**record, "trace": "/some/where/mine.csv"}
    assert rebuilt(mine, ScenarioFile(), ["mine.csv"])[0].workload.source == "mine.csv"


def test_a_run_of_the_command_line_opens_with_its_eager_kernels(tmp_path: Path) -> None:
    text = "deployment: {model: llama-2-7b, gpu: a10g}\npreset: hf-transformers"
    file = parse_scenario(text, "test")
    record = load_run(save_run(tmp_path, "run", simulated_scenario(file))).scenario
    del record[FILE]
    found = rebuilt(record, ScenarioFile())[0].settled()
    assert found.profile == file.settled().profile
    assert found.policies.as_dict() == record["policies"]


NO_MODEL: dict[str, Any] = {"model": None, "gpu": None, "techniques": []}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"times": "layers:ops"}, "not offered"),
        ({**NO_MODEL, "profile": ["base-cpu", "x"]}, "not offered"),
        ({**NO_MODEL, "profile": "/x.json"}, "not offered"),
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
