"""A scenario as a file: what is wrong with bad ones, and that good ones survive the way there and
back; the command line runs them with the same numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from servetwin.app.scenario.files.scenario_file import (
    FIRST_SERVER,
    Limits,
    ScenarioError,
    ScenarioFile,
    parse_scenario,
    read_scenario,
)
from servetwin.sim.experiments.predict import run_once
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.reading import read_trace
from tests.support.command import refused, servetwin
from tests.support.scenario_strategies import scenarios
from tests.support.wrong_words import wrong_words


@pytest.mark.parametrize(("text", "message"), wrong_words("scenarios"))
def test_a_bad_scenario_names_the_key_and_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        parse_scenario(text, "s.yaml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_file_is_the_default_of_the_dashboard() -> None:
    assert parse_scenario("", "s.yaml") == ScenarioFile()
    assert ScenarioFile().deployment == FIRST_SERVER


@given(scenarios())
def test_yaml_keeps_a_scenario(scenario: ScenarioFile) -> None:
    text = scenario.as_yaml()
    assert "\ndeployment:" in f"\n{text}"
    assert parse_scenario(text, "s.yaml") == scenario


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read: No such file"), (b"\xff", "not a text file")]
)
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "s.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ScenarioError, match=message) as error:
        read_scenario(path)
    assert str(path) in str(error.value)


def test_settings_win_over_the_preset_and_the_preset_over_the_server() -> None:
    scenario = parse_scenario("preset: tgi\npolicies: {queue_limit: 7}", "s").settled()
    assert scenario.policies.batching == "prefill-first"
    assert scenario.policies.queue_limit == 7
    assert scenario.policies.max_seqs == 256


def test_policies_by_label_lie_over_those_of_the_file() -> None:
    file = parse_scenario("policies: {max_seqs: 8, batching: static}", "s")
    other = file.with_policies("chunked+replicas=2").settled()
    assert (other.policies.batching, other.policies.max_seqs) == ("chunked", 8)
    assert other.cluster.replicas == 2
    with pytest.raises(PolicyError, match="did you mean 'chunked'"):
        file.with_policies("chunkd")


def test_the_model_length_grows_to_the_longest_request_unless_it_is_set() -> None:
    file = parse_scenario("workload: {requests: 20, prompt_tokens: 9000, prompt_cv: 0.05}", "s")
    trace = file.workload.trace(0)
    longest = max(request.total_tokens for request in trace)
    assert file.settled().policies.max_model_len == 8192
    assert file.build(trace).policies.max_model_len == 1 << int(np.ceil(np.log2(longest)))
    assert file.over({"max_model_len": 8192}, {}).build(trace).policies.max_model_len == 8192


SMALL = """
workload: {requests: 60, rate_per_s: 20, prompt_tokens: 200}
deployment: {model: llama-3-8b, gpu: h100}
policies: {max_seqs: 4, batching: chunked}
slo: {ttft_ms: 100}
seed: 3
"""


H100 = "deployment: {model: llama-3-8b, gpu: h100}"


def replayed(*arguments: str) -> dict[str, Any]:
    done = servetwin("replay", *arguments, "--json", "--replications", "0")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_replay_has_the_numbers_of_the_dashboard(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SMALL)
    file = parse_scenario(SMALL, "s")
    trace = file.workload.trace(file.seed)
    expected = run_once(trace, file.build(trace), seed=file.seed).summary(file.slo.slo())
    found = replayed("--scenario", str(path))
    for metric in ("ttft_s", "tpot_s", "e2e_s", "requests", "goodput_per_s", "slo_attainment"):
        assert found[metric] == expected[metric]
    assert found["seed"] == 3


def test_options_win_over_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SMALL)
    found = replayed("--scenario", str(path), "--max-seqs", "16", "--limit", "10", "--seed", "5")
    policies = found["policies"]
    assert (policies["max_seqs"], policies["batching"]) == (16, "chunked")
    assert found["requests"]["total"] == 10
    assert found["seed"] == 5


@pytest.mark.parametrize(
    ("percentile", "of"), [(99.9, 1000), (99, 100), (58, 100), (99.99, 10_000)]
)
def test_a_share_is_reached_by_as_many_as_its_percentage_says(percentile: float, of: int) -> None:
    wanted = Limits(percentile=percentile).attainment
    needed = round(percentile * of / 100)
    assert needed / of >= wanted > (needed - 1) / of


def test_neither_trace_nor_scenario_is_one_line() -> None:
    assert refused("replay") == "servetwin: no trace: give TRACE, or --scenario FILE"


def own_trace(path: Path, requests: int) -> Path:
    rows = [
        json.dumps({"arrival_s": n / 50, "prompt_tokens": 160, "output_tokens": 2})
        for n in range(requests)
    ]
    path.write_text("\n".join(rows))
    return path


@pytest.mark.parametrize(("requests", "used"), [("null", 2_100), ("700", 700)])
def test_a_trace_is_used_whole_unless_a_part_is_asked_for(
    tmp_path: Path, requests: str, used: int
) -> None:
    trace, scenario = own_trace(tmp_path / "own.jsonl", 2_100), tmp_path / "s.yaml"
    scenario.write_text(
        f"workload: {{source: own.jsonl, rate_per_s: 50, requests: {requests}}}\n" + H100
    )
    found = replayed(str(trace), "--scenario", str(scenario))
    assert found["requests"]["total"] == used


def test_a_replay_assumes_prefixes_as_the_dashboard_does(tmp_path: Path) -> None:
    trace, scenario = own_trace(tmp_path / "own.jsonl", 300), tmp_path / "s.yaml"
    text = (
        "workload: {source: own.jsonl, rate_per_s: null, prefix_share: 0.5}\n"
        f"policies: {{prefix_cache: true}}\n{H100}"
    )
    scenario.write_text(text)
    done = servetwin("replay", str(trace), "--scenario", str(scenario), "--json",
                     "--replications", "0")  # fmt: skip
    assert "cannot tell" not in done.err
    file = parse_scenario(text, "s")
    uploaded = file.workload.trace(file.seed, {"own.jsonl": read_trace(trace)})
    expected = run_once(uploaded, file.build(uploaded), seed=file.seed).summary()
    found = json.loads(done.out)
    assert found["prefix_hit_rate_tokens"] == expected["prefix_hit_rate_tokens"] > 0.4
    assert found["ttft_s"] == expected["ttft_s"]
