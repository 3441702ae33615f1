"""Scenarios of the options: which value wins, how the model length grows, what is noted."""

from dataclasses import replace
from typing import Any

import pytest

from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.scenarios import build_scenario
from servetwin.app.scenario.servers import Servers
from servetwin.policies.presets import PRESETS
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.command import servetwin
from tests.support.paths import SAMPLE, SHEET_PROFILE

PROFILE = load_profile(SHEET_PROFILE)


SERVERS = Servers(Scenario(PROFILE.policy_config(), PROFILE))


def trace(*requests: Request) -> Trace:
    return Trace(requests or (request("a"),), "made")


def scenario(compared: str | None = None, **options: Any) -> Scenario:
    return build_scenario(trace(), SERVERS, PolicyOptions(**options), ClusterOptions(), compared)


def test_a_raised_model_length_leaves_as_much_memory_as_a_given_one() -> None:
    """Without FlashAttention the scores of the longest context take memory."""
    sheet = Deployment(model="llama-3-8b", gpu="h100", without=("flash-attention",))
    asked, memory = trace(request("a", prompt=60_000, output=10)), []
    for policy in (PolicyOptions(), PolicyOptions(max_model_len=65_536)):
        found = build_scenario(asked, sheet.servers(), policy, ClusterOptions())
        memory.append((found.policies.max_model_len, found.policies.kv_tokens))
    text = "deployment: {model: llama-3-8b, gpu: h100, without: [flash-attention]}"
    found = parse_scenario(text, "test").build(asked)
    memory.append((found.policies.max_model_len, found.policies.kv_tokens))
    assert len(set(memory)) == 1


def test_compared_policies_win_over_options_and_presets_give_way_in_servers() -> None:
    assert scenario("continuous", preset="sarathi", batching="static").policies == replace(
        PROFILE.policy_config(), **{**PRESETS["sarathi"].policies, "batching": "continuous"}
    )
    cluster = ClusterOptions(replicas=2, prefill_decode=(2, 3))
    asked = "distserve+replicas=4"
    found = build_scenario(trace(), SERVERS, PolicyOptions(), cluster, asked).cluster
    assert (found.replicas, found.prefill_replicas, found.decode_replicas) == (4, 2, 3)
    assert found.router == PRESETS["distserve"].cluster["router"]


@pytest.mark.parametrize(("prompt", "limit"), [(8_000, 8_192), (8_192, 16_384), (20_000, 32_768)])
def test_the_model_length_grows_to_the_longest_request(
    prompt: int, limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    long = trace(request("a", prompt=prompt, output=4))
    found = build_scenario(long, SERVERS, PolicyOptions(), ClusterOptions())
    assert found.policies.max_model_len == limit
    said = capsys.readouterr().err
    assert (f"has {prompt + 4} tokens; model length raised" in said) == (limit > 8_192)
    set_by_hand = PolicyOptions(settings=("max_model_len=4096",))
    kept = build_scenario(long, SERVERS, set_by_hand, ClusterOptions())
    assert kept.policies.max_model_len == 4_096


def test_a_swap_that_takes_no_time_is_said() -> None:
    swap = ("--set", "preemption=swap", "--set", "host_kv_tokens=4096", "--replications", 0)
    free = servetwin("replay", SAMPLE, "--profile", "base-cpu", *swap)
    timed = servetwin("replay", SAMPLE, "--profile", SHEET_PROFILE, *swap)
    assert free.code == timed.code == 0
    assert "base-cpu does not know the host link" in free.err
    assert "host link" not in timed.err
