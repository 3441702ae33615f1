"""Presets: all that were promised, each with its source, each through the burstiest trace."""

from collections.abc import Mapping
from typing import Any

import pytest

from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.scenarios import build_scenario
from servetwin.app.scenario.servers import Servers
from servetwin.app.scenario.settings import with_settings
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS, Preset, find_preset
from servetwin.sim.core.simulate import simulate
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.profile import load_profile, shipped_profiles
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.reading import read_trace
from servetwin.workloads.trace import Trace
from tests.support.checked import CheckedScheduler, request
from tests.support.paths import SHARED, SHEET_PROFILE

BURSTY = SHARED / "traces/azure/AzureLLMInferenceTrace_code.csv.gz"
REASONS = ("queue_full: ", "too_late: ")
PROMISED = [
    "fastertransformer", "orca", "vllm-v0", "vllm-v1", "sarathi", "sglang", "tgi", "tensorrt-llm",
    "deepspeed-fastgen", "lightllm", "lmdeploy", "llama.cpp", "mlc-llm", "openllm", "paddle",
    "distserve", "splitwise", "vllm-0.6", "vllm-0.8", "hf-transformers", "deepspeed-inference",
    "fastdeploy",
]  # fmt: skip
every_preset = pytest.mark.parametrize("name", PROMISED)


@pytest.fixture(scope="module")
def bursty() -> Trace:
    if not BURSTY.is_file():
        pytest.skip(f"the public trace {BURSTY.name} is not here")
    return read_trace(BURSTY)


def servers(profile: str) -> Servers:
    found = load_profile(profile)
    return Servers(Scenario(found.policy_config(), found))


def scenario(name: str, trace: Trace, profile: str) -> Scenario:
    policy = PolicyOptions(preset=name)
    return build_scenario(trace, servers(profile), policy, ClusterOptions())


def test_every_promised_server_has_a_preset() -> None:
    assert sorted(PRESETS) == sorted(PROMISED)


@every_preset
def test_a_preset_says_in_one_line_what_it_imitates_and_whence(name: str) -> None:
    preset = find_preset(name)
    for line in (preset.imitates, preset.source):
        assert len(line) > 20
        assert "\n" not in line


@every_preset
@pytest.mark.parametrize("profile", shipped_profiles())
def test_a_preset_builds_on_every_shipped_profile(name: str, profile: str) -> None:
    found = scenario(name, Trace((request("a"),), "made"), profile)
    preset, policies = find_preset(name), found.policies.as_dict()
    assert settings_of(policies, preset.policies) == preset.policies
    assert settings_of(found.cluster.as_dict(), preset.cluster) == preset.cluster
    build_scheduler(found.policies)


def settings_of(all_settings: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: all_settings[name] for name in names}


def resolved(preset: Preset) -> tuple[PolicyConfig, dict[str, Any], str]:
    """All that a preset decides, defaults filled in."""
    config = with_settings(PolicyConfig(), preset.policies)
    return config, dict(preset.cluster), preset.kernels


@every_preset
def test_presets_that_are_the_same_server_say_of_which_they_are_a_copy(name: str) -> None:
    preset = find_preset(name)
    same = [
        other
        for other in PRESETS
        if other != name and resolved(find_preset(other)) == resolved(preset)
    ]
    if preset.copy_of:
        assert preset.copy_of in same
        assert find_preset(preset.copy_of).copy_of is None
    else:
        assert all(find_preset(other).copy_of == name for other in same)


def test_the_copies_are_known() -> None:
    copies = {name: preset.copy_of for name, preset in PRESETS.items() if preset.copy_of}
    assert copies == {"openllm": "vllm-v0"}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("vlm-v1", "did you mean 'vllm-v1'?"),
        ("saratih", "did you mean 'sarathi'?"),
        ("llamacpp", "did you mean 'llama.cpp'?"),
        ("nothing-like-it", "known are deepspeed-fastgen, deepspeed-inference,"),
    ],
)
def test_an_unknown_preset_is_named_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(PolicyError) as caught:
        find_preset(name)
    assert f"unknown preset {name!r}; {nearest}" in str(caught.value)


@every_preset
@pytest.mark.slow
def test_the_burstiest_trace_runs_to_its_end(name: str, bursty: Trace) -> None:
    run = run_once(bursty, scenario(name, bursty, SHEET_PROFILE))
    check_end_of_every_request(run, bursty, find_preset(name))


def check_end_of_every_request(run: Run, trace: Trace, preset: Preset) -> None:
    frame = run.requests
    assert frame["request_id"].tolist() == [asked.request_id for asked in trace]
    done = frame["status"] == "finished"
    asked_tokens = [asked.output_tokens for asked in trace]
    assert frame["output_tokens"].tolist() == [
        tokens if finished else 0 for tokens, finished in zip(asked_tokens, done, strict=True)
    ]
    given_up = frame[~done]
    assert set(given_up["status"]) <= {"refused"}
    assert given_up["error"].str.startswith(REASONS).all()
    assert len(given_up) < len(frame) / 50
    if "queue_limit" not in preset.policies:
        assert done.all()
    moved = len(run.handovers)
    assert moved == (sum(n > 1 for n in asked_tokens) if preset.cluster else 0)


@every_preset
def test_a_preset_breaks_no_law_in_a_burst_and_leaves_nothing(name: str, bursty: Trace) -> None:
    """Short forms of the trace's requests, all at once, in memory for a few of them."""
    burst = [
        request(asked.request_id, 0.0, 1 + asked.prompt_tokens // 16, asked.output_tokens)
        for asked in bursty.requests[:60]
    ]
    longest = max(asked.total_tokens for asked in burst)
    tight = PolicyOptions(preset=name, kv_tokens="1024", max_seqs=32, max_model_len=longest)
    found = build_scenario(bursty, servers(SHEET_PROFILE), tight, ClusterOptions())
    scheduler = CheckedScheduler(found.policies)
    model = found.profile.step_time(scheduler.memory.layout).model()
    run = simulate(burst, scheduler, model)
    assert set(run.requests["status"]) == {"finished"}
    on_demand = found.policies.kv == "paged" and found.policies.admission == "prompt"
    assert (run.requests["preemptions"].sum() > 0) == on_demand
    assert scheduler.load()[:2] == (0, 0), "something is left over"
    usage = scheduler.memory.usage([])
    assert usage.live_tokens == usage.reserved_tokens == usage.internal_waste_tokens == 0
