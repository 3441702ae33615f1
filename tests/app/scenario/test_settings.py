"""Settings as text: what each word becomes, which source wins, and what is said of a wrong one."""

import re
from typing import Any

import pytest

from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.scenarios import build_scenario
from servetwin.app.scenario.servers import Servers
from servetwin.app.scenario.settings import (
    parse_policies,
    parse_settings,
    policies_named,
    with_settings,
)
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.profile import load_profile
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.command import SERVER, refused
from tests.support.paths import SAMPLE, SHEET_PROFILE
from tests.support.wrong_words import wrong_words

PROFILE = load_profile(SHEET_PROFILE)
STATIC = {"batching": "static"}
SERVERS = Servers(Scenario(PROFILE.policy_config(), PROFILE))


def trace(*requests: Request) -> Trace:
    return Trace(requests or (request("a"),), "made")


def scenario(compared: str | None = None, **options: Any) -> Scenario:
    return build_scenario(trace(), SERVERS, PolicyOptions(**options), ClusterOptions(), compared)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("queue_order=sjf", "sjf"),
        ("max_seqs=7", 7),
        ("watermark=0.05", 0.05),
        ("watermark=1e-2", 0.01),
        ("prefix_cache=yes", True),
        ("prefix_cache=Off", False),
        ("queue_limit=4", 4),
        ("queue_limit=None", None),
        ("shed_ttft_s=none", None),
        ("shed_ttft_s=2", 2.0),
        ("batching=mine.py:Mine", "mine.py:Mine"),
    ],
)
def test_each_word_becomes_what_its_setting_is(text: str, value: Any) -> None:
    found = parse_settings([text], "--set")
    assert found == {text.partition("=")[0]: value}
    assert type(next(iter(found.values()))) is type(value)


@pytest.mark.parametrize(("text", "message"), wrong_words("settings"))
def test_a_wrong_setting_is_one_line(text: str, message: str) -> None:
    assert message in refused("replay", SAMPLE, *SERVER, "--set", text)


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ({}, 256),
        ({"preset": "llama.cpp"}, 4),
        ({"preset": "llama.cpp", "settings": ("max_seqs=5",)}, 5),
        ({"preset": "llama.cpp", "settings": ("max_seqs=5",), "max_seqs": 7}, 7),
        ({"preset": "llama.cpp", "max_seqs": 7}, 7),
    ],
)
def test_options_win_over_settings_over_presets_over_the_profile(
    options: dict[str, Any], seqs: int
) -> None:
    assert scenario(**options).policies.max_seqs == seqs


def test_settings_keep_a_base_consistent() -> None:
    shared = PolicyConfig(prefix_cache=True, max_seqs=4, token_budget=8)
    assert not with_settings(shared, {"kv": "contiguous"}).prefix_cache
    assert with_settings(shared, {"max_seqs": 64}).token_budget == 64
    with pytest.raises(PolicyError, match="must be false with kv: contiguous"):
        with_settings(shared, {"kv": "contiguous", "prefix_cache": True})
    with pytest.raises(PolicyError, match="token_budget: 8 is not possible"):
        with_settings(shared, {"max_seqs": 64, "token_budget": 8})


@pytest.mark.parametrize(
    ("text", "policies", "cluster"),
    [
        ("static+contiguous", {**STATIC, "kv": "contiguous"}, {}),
        ("chunked+paged+prefix", {"batching": "chunked", "kv": "paged", "prefix_cache": True}, {}),
        ("static+contiguous-exact", {**STATIC, "kv": "contiguous", "reservation": "exact"}, {}),
        ("my.py:Mine+your.py:Yours", {"batching": "my.py:Mine", "kv": "your.py:Yours"}, {}),
        ("queue_order=sjf", {"queue_order": "sjf"}, {}),
        ("sarathi+token_budget=64", {**PRESETS["sarathi"].policies, "token_budget": 64}, {}),
        ("sarathi+static", {**PRESETS["sarathi"].policies, "batching": "static"}, {}),
        ("paged+contiguous", {"kv": "contiguous"}, {}),
        ("replicas=4+router=least-tokens", {}, {"replicas": 4, "router": "least-tokens"}),
        ("closed_loop=none", {}, {"closed_loop": None}),
    ],
)
def test_a_side_of_a_comparison_is_named_in_parts(
    text: str, policies: dict[str, Any], cluster: dict[str, Any]
) -> None:
    presets = ("sarathi",) if text.startswith("sarathi") else ()
    assert parse_policies(text) == (policies, {}, cluster, presets)


@pytest.mark.parametrize(
    "config",
    [
        PolicyConfig(batching="static", kv="contiguous", reservation="pow2"),
        PolicyConfig(batching="chunked", prefix_cache=True),
    ],
)
def test_the_name_of_policies_names_them(config: PolicyConfig) -> None:
    assert policies_named(config.name, PolicyConfig(), "--policy") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("continuous+paged+cache", "--policy: unknown policies 'cache'"),
        ("static-paged", "--policy: unknown policies 'static-paged'"),
        ("static+contiguous-most", "reservation: 'most'"),
        ("static+replicas=2", "--policy: 'static+replicas=2': one server has no replicas"),
    ],
)
def test_wrong_policies_of_one_server_are_one_line(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        policies_named(text, PolicyConfig(), "--policy")


def test_a_preset_of_a_cluster_brings_its_servers() -> None:
    preset = PRESETS["distserve"]
    named = parse_policies("distserve")
    assert named == (preset.policies, preset.cluster, {}, ("distserve",))


@pytest.mark.parametrize(
    ("compared", "message"),
    [
        ("static+continuos", "unknown policies 'continuos'; did you mean 'continuous'?"),
        ("vllm-v2", "unknown policies 'vllm-v2'; did you mean 'vllm-v"),
        ("prefx", "did you mean 'prefix'?"),
        ("", "unknown policies ''; name a preset, a policy or KEY=VALUE"),
        ("replica=2", "unknown setting 'replica'; did you mean 'replicas'?"),
        ("max_seqs=x", "replay compare: max_seqs: 'x' is not a whole number"),
        ("replicas=0", "replicas: 0 is not possible; it must be at least 1"),
        ("contiguous+prefix", "it must be false with kv: contiguous"),
    ],
)
def test_a_wrong_side_is_one_line(compared: str, message: str) -> None:
    assert message in refused("replay", "compare", "static", compared, SAMPLE, *SERVER)
