"""Techniques over settings: ``techniques`` and ``replay`` simulate the same servers."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from servetwin.app.scenario.files.technique_scenario import (
    TechniqueScenario,
    read_technique_scenario,
)
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.policy import ClusterOptions, PolicyOptions
from servetwin.app.scenario.scenarios import build_scenario
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.step_times.roofline.server import RooflineServer
from servetwin.sim.techniques.registry import TECHNIQUES, find_technique
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.trace import Trace
from tests.support.paths import SHEET_PROFILE

MODELS = ("llama-3-8b", "mixtral-8x7b", "deepseek-v2")
HARDWARE = "b200"
POLICIES: dict[str, dict[str, object]] = {
    "its own": {},
    "chunked": {"batching": "chunked", "max_seqs": 8, "kv_tokens": 4096},
    "static": {"batching": "static", "max_seqs": 4},
}


def load(name: str) -> Trace:
    """A few requests of the load under which a technique is judged."""
    experiment = TECHNIQUES[name].experiment or Experiment(128, 32)
    few = Experiment(
        min(experiment.prompt_tokens, 600), min(experiment.output_tokens, 32), alone=5,
        saturated=5, shared_tokens=experiment.shared_tokens, samples=experiment.samples,
    )  # fmt: skip
    return few.all_at_once(seed=3)


def tried(model: str, policies: dict[str, object], folder: Path) -> TechniqueScenario:
    """As ``servetwin techniques --scenario`` reads it."""
    path = folder / "mine.yaml"
    path.write_text(f"deployment: {{model: {model}, gpu: {HARDWARE}}}\npolicies: {policies}\n")
    return read_technique_scenario(path)


def replayed(model: str, policies: dict[str, object], trace: Trace, **toggles: object) -> Scenario:
    """As ``servetwin replay --technique --without`` builds it."""
    servers = Deployment(model=model, gpu=HARDWARE, **toggles)  # type: ignore[arg-type]
    settings = tuple(f"{key}={value}" for key, value in policies.items())
    return build_scenario(
        trace, servers.servers(), PolicyOptions(settings=settings), ClusterOptions()
    )


def every_pair() -> list[Any]:
    """Each technique with each model and with each policy, each model with each policy."""
    policies = list(POLICIES)
    chosen = [
        (name, model, policies[(turn + place) % len(policies)])
        for turn, name in enumerate(TECHNIQUES)
        for place, model in enumerate(MODELS)
    ]
    return [
        pytest.param(name, model, POLICIES[policy], id=f"{name}-{model}-{policy}")
        for name, model, policy in chosen
    ]


@pytest.mark.parametrize(("name", "model", "policies"), every_pair())
def test_techniques_and_replay_give_the_same_figures(
    name: str, model: str, policies: dict[str, object], tmp_path: Path
) -> None:
    technique, trace = find_technique(name), load(name)
    scenario = tried(model, policies, tmp_path)
    tried_on = scenario.base_of(technique)
    sides = (technique.off, {"without": (name,)}), (technique.apply, {"techniques": (name,)})
    for change, toggles in sides:
        here = outcome(partial(changed, change, tried_on), trace)
        there = outcome(partial(replayed, model, policies, trace, **toggles), trace)
        assert here == there


def changed(change: Callable[[Setup], Setup], setup: Setup) -> Scenario:
    return change(setup).scenario()


def outcome(build: Callable[[], Scenario], trace: Trace) -> str:
    """All figures of a run to the last bit, or why there is none."""
    try:
        scenario = build()
        figures = run_once(trace, scenario, seed=5).summary()
    except PolicyError as error:
        return str(error)
    del figures["simulation"]  # how long it took here
    return f"{scenario} {figures}"


def test_techniques_come_over_the_preset_and_the_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = load("kv-cache")
    asked = {"batching": "static", "max_seqs": 4}
    found = replayed(MODELS[0], asked, trace, techniques=("continuous-batching",))
    assert (found.policies.batching, found.policies.max_seqs) == ("continuous", 256)
    assert capsys.readouterr().err.splitlines() == [
        "note: --technique continuous-batching sets batching to 'continuous' in place of 'static'",
        "note: --technique continuous-batching sets max_seqs to 256 in place of 4",
    ]
    kept = replayed(MODELS[0], {"max_seqs": 7}, trace, techniques=("continuous-batching",))
    assert kept.policies.max_seqs == 7
    assert "note: continuous-batching is on here already" in capsys.readouterr().err


def test_drafts_grow_the_budget_of_the_batch_that_was_asked_for() -> None:
    trace, speculative = load("kv-cache"), ("speculative:any_vocabulary=true",)
    found = replayed(MODELS[0], {"max_seqs": 32}, trace, techniques=speculative)
    assert found.policies.token_budget == 2048 + 32 * 4


def test_a_memory_that_was_asked_for_stays() -> None:
    trace = load("kv-cache")
    for tokens in (4096, 10**9):
        found = replayed(MODELS[0], {"kv_tokens": tokens}, trace, techniques=("fp8",))
        assert found.policies.kv_tokens == tokens


def test_techniques_of_the_options_win_over_those_of_a_file() -> None:
    in_file = Deployment(model="m", gpu="h", techniques=("fp8", "kv-quantisation:format=int8"))
    given = Deployment(techniques=("kv-quantisation",), without=("fp8", "kv-cache"))
    assert given.names_no_server()
    assert not in_file.names_no_server()
    both = given.over(in_file)
    assert both.techniques == ("kv-quantisation",)
    assert both.without == ("kv-cache",)  # without fp8 in the list, nothing is left to undo
    again = Deployment(techniques=("kv-cache",)).over(both)
    assert (again.techniques, again.without) == (("kv-quantisation", "kv-cache"), ())
    paged = replace(in_file, techniques=("paged-attention:block_tokens=32",))
    regions = Deployment(without=("paged-attention",)).over(paged)
    assert (regions.techniques, regions.without) == ((), ("paged-attention",))


def imitation(preset: str | None, *named: str, **server: object) -> Scenario:
    servers = Deployment(**server).servers().imitating(preset, *named)  # type: ignore[arg-type]
    return servers.scenario()


SHEET = {"model": "llama-2-7b", "gpu": "a10g"}


def test_a_preset_of_eager_kernels_slows_data_sheets_down() -> None:
    """39 ms a step of 32 layers, of which reading the weights hides 28; nothing is fused."""
    plain, eager = imitation(None, **SHEET).profile, imitation("hf-transformers", **SHEET).profile
    assert isinstance(plain, RooflineServer)
    assert isinstance(eager, RooflineServer)
    kernels = eager.deployment.kernels
    assert (kernels.fused, kernels.flash_attention, kernels.attention_slowdown) == (False, False, 3)
    weights_s = plain.deployment.weight_bytes() / 600e9 / plain.deployment.efficiency.memory
    overhead_s = eager.deployment.efficiency.overhead_s
    assert overhead_s + weights_s == pytest.approx(1 / 25.5)


def test_the_last_preset_says_which_kernels_run() -> None:
    plain = imitation(None, **SHEET)
    assert imitation("hf-transformers", "vllm-v0", **SHEET) == plain
    assert imitation("vllm-v0", "hf-transformers", **SHEET) != plain
    assert imitation("vllm-v0", **SHEET) == plain


def test_a_profile_keeps_its_step_times_and_says_so() -> None:
    servers = Deployment(profile=(SHEET_PROFILE,)).servers()
    assert servers.imitating("vllm-v0").notes() == []
    imitated = servers.imitating("hf-transformers")
    (note,) = imitated.notes()
    assert "step times stay those of llama-3-8b-h100" in note
    assert imitated.scenario() == servers.scenario()


def test_a_technique_takes_the_place_of_an_eager_kernel() -> None:
    found = imitation("hf-transformers", techniques=("flash-attention",), **SHEET).profile
    assert isinstance(found, RooflineServer)
    assert found.deployment.kernels.flash_attention
    assert not found.deployment.kernels.fused


def test_memory_on_data_sheets_is_what_the_step_of_the_settings_leaves() -> None:
    servers = Deployment(**SHEET).servers()  # type: ignore[arg-type]
    small, large = (
        servers.over({"token_budget": budget, "max_seqs": 8}, {}).scenario().policies.kv_tokens
        for budget in (512, 8192)
    )
    assert large < small
    assert servers.over({"kv_tokens": 4096}, {}).scenario().policies.kv_tokens == 4096
