"""The effect table: signs of the notes, intervals, dead band, scenarios of one's own."""

import json
from pathlib import Path

import pytest

from servetwin.app.scenario.files.technique_scenario import read_technique_scenario
from servetwin.policies.build import build_scheduler
from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.simulate import simulate
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.sim.techniques.effects import METRICS, Change, Effect, Laboratory, compare
from servetwin.sim.techniques.registry import TECHNIQUES, find_technique
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.request import Request
from tests.support.command import refused, servetwin
from tests.support.effort import FULL
from tests.support.published.effects import ParallelAndSplit

pytestmark = pytest.mark.slow

BASE = read_technique_scenario(None).setup
SMALL = Experiment(loaded=40, saturated=120)
TINY = Experiment(96, 24, alone=2, loaded=12, saturated=12)
IMPOSSIBLE = {"latent-attention", "expert-parallel"}
"""What the default model cannot have."""


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    return Laboratory()


@pytest.fixture(scope="module")
def quick_laboratory() -> Laboratory:
    """A laboratory for what no figure depends on."""
    return Laboratory() if FULL else Laboratory(replications=2)


@pytest.mark.parametrize(
    ("technique", "ttft", "tps", "throughput", "lossless"),
    [
        (find_technique("smooth-quant"), "+", "+", "+", False),
        (ParallelAndSplit(), "+", "+", "+", True),
        (find_technique("kv-cache"), "0", "+", "+", True),
        (find_technique("paged-attention"), "0", "0", "+", True),
    ],
    ids=lambda value: value.name if isinstance(value, Technique) else str(value),
)
def test_the_notes_signs_for_a_request_alone_and_a_saturated_server(
    laboratory: Laboratory,
    technique: Technique,
    ttft: str,
    tps: str,
    throughput: str,
    lossless: bool,
) -> None:
    effect = laboratory.effect(technique, BASE, SMALL)
    signs = [effect.of(metric).sign for metric in ("ttft_alone", "tps_alone", "throughput")]
    assert signs == [ttft, tps, throughput]
    assert technique.lossless is lossless


def test_continuous_batching_under_both_timings(laboratory: Laboratory) -> None:
    technique = find_technique("continuous-batching")
    assert technique.experiment is not None
    effect = laboratory.effect(technique, BASE, technique.experiment)
    signs = {metric: effect.of(metric).sign for metric in METRICS}
    assert signs["ttft_from_admission"] == "-"  # the note's sign
    assert signs["ttft_loaded"] == "+"  # from arrival, under load
    assert signs["tps_loaded"] == "-"
    assert signs["throughput"] == "+"
    found = effect.of("ttft_loaded")
    assert found.change is not None
    assert found.change < -0.9


def test_what_the_default_model_cannot_have_is_a_technique() -> None:
    assert set(TECHNIQUES) > IMPOSSIBLE


@pytest.mark.parametrize("name", TECHNIQUES)
def test_only_what_the_default_model_cannot_have_is_refused(
    quick_laboratory: Laboratory, name: str
) -> None:
    effect = quick_laboratory.effect(TECHNIQUES[name](), BASE, TINY)
    assert bool(effect.refused) == (name in IMPOSSIBLE), effect.refused
    assert bool(effect.changes) == (name not in IMPOSSIBLE)
    technique = TECHNIQUES[name]
    assert technique.formula
    assert technique.source
    assert technique.__doc__


def test_equal_sides_change_nothing() -> None:
    class Nothing(Technique):
        """Nothing at all."""

        name = "nothing"
        family = "serving"
        kind = "system"
        lossless = True
        formula = source = ""

        def apply(self, setup: Setup) -> Setup:
            return setup

    effect = Laboratory(replications=3).effect(Nothing(), BASE, SMALL)
    assert [(c.change, c.low, c.high) for c in effect.changes] == [(0, 0, 0)] * len(METRICS)
    assert {c.sign for c in effect.changes} == {"0"}


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (Change("ttft_alone", -0.5, -0.6, -0.4), "+"),
        (Change("ttft_alone", 0.5, 0.4, 0.6), "-"),
        (Change("throughput", 0.5, 0.4, 0.6), "+"),
        (Change("throughput", -0.5, -0.6, -0.4), "-"),
        (Change("throughput", 0.009, 0.008, 0.01), "0"),
        (Change("throughput", 0.05, -0.1, 0.2), "?"),
        (Change("throughput", None, None, None), ""),
    ],
)
def test_signs(change: Change, sign: str) -> None:
    assert change.sign == sign


def test_the_interval_is_students_t_over_pairs() -> None:
    found = compare("throughput", [1.0, 2.0, 4.0], [1.1, 2.4, 5.2])
    assert found.change == pytest.approx(0.2)
    assert found.high == pytest.approx(0.2 + 4.302653 * 0.1 / 3**0.5)
    assert found.low == pytest.approx(0.2 - 4.302653 * 0.1 / 3**0.5)


def test_an_image_model_is_a_fixed_number_of_steps_without_keys_and_values() -> None:
    """Stable diffusion, as far as a server goes: service = steps x UNet time."""
    config = PolicyConfig(
        kv="grouped", kv_groups="state", kv_tokens=4, block_tokens=1, max_seqs=4, token_budget=8
    )
    unet = LinearStepTime.of({"constant": 0.02, "rows_from_0": 0.01})
    requests = [Request(f"image {number}", 0.0, 1, 50) for number in range(4)]
    run = simulate(requests, build_scheduler(config), unet)
    assert run.requests["e2e_s"].tolist() == pytest.approx([50 * (0.02 + 4 * 0.01)] * 4)


def test_the_command_prints_signs_figures_and_refusals() -> None:
    assert "unknown technique 'int4'" in refused("techniques", "--only", "int4")
    done = servetwin(
        "techniques", "--only", "weight-int4", "--only", "expert-parallel", "--replications", 2
    )
    assert done.code == 0
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "llama-2-7b on a100-80gb, continuous+paged"
    assert any(line.startswith("not applicable: expert-parallel") for line in lines)
    assert sum(line.startswith("weight-int4") for line in lines) == 2


def test_json_has_the_changes_unrounded() -> None:
    done = servetwin("techniques", "--only", "tensor-parallel:ways=4", "--json")
    (entry,) = json.loads(done.out)["techniques"]
    assert entry["parameters"]["ways"] == 4
    assert entry["changes"]["ttft_alone"]["sign"] == "+"
    assert -0.75 < entry["changes"]["ttft_alone"]["change"] < -0.5


def test_the_list_has_every_technique() -> None:
    done = servetwin("techniques", "list")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 100
    as_json = json.loads(servetwin("techniques", "list", "--json").out)
    for name, technique in TECHNIQUES.items():
        assert f"  {name}" in done.out
        assert technique.lossless == as_json[name]["lossless"]


def test_a_scenario_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "deployment: {model: mixtral-8x7b, gpu: h100, techniques: [tensor-parallel:ways=2],"
        " efficiency: compute=0.5}\npolicies: {batching: chunked, max_seqs: 32}\n"
        "workload: {prompt_tokens: 64, output_tokens: 16, alone: 2, loaded: 8, saturated: 8}\n"
    )
    found = read_technique_scenario(path)
    assert found.setup.deployment.efficiency.compute == 0.5
    assert found.setup.deployment.parallel.tensor == 2
    assert found.setup.policies.batching == "chunked"
    assert found.experiment.prompt_tokens == 64
    done = servetwin("techniques", "--scenario", path, "--only", "weight-int8", "--replications", 2)
    assert done.out.startswith("mixtral-8x7b on 2 x h100, chunked+paged")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("deployment: {modle: x}", "deployment.modle: unknown key; did you mean 'model'?"),
        ("deployment: {model: llama-2-7c, gpu: h100}", "did you mean 'llama-2-7b'"),
        ("workload: {prompt: 3}", "workload: unknown key 'prompt'; did you mean 'prompt_tokens'?"),
        (
            "policies: {batchin: static}",
            "policies.batchin: unknown key; did you mean 'batching'?",
        ),
        (
            "deployment: {model: llama-2-7b, gpu: h100, efficiency: compute=7}",
            "efficiency: compute: 7 is not possible",
        ),
        (
            "deployment: {model: llama-2-7b, gpu: h100, techniques: [tensor-parallel:ways=3]}",
            "3 ways do not divide the 32 heads",
        ),
        ("- 1", "a scenario is a YAML mapping"),
        ("model: [", "not a scenario that can be read"),
        ("techniques: 3", "unknown key 'techniques'"),
    ],
)
def test_scenarios_that_are_wrong_say_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text + "\n")
    assert message in refused("techniques", "--scenario", path, "--only", "kernel-fusion")


def test_weights_that_do_not_fit_say_by_how_much(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("deployment: {model: llama-2-70b, gpu: a100-80gb}\n")
    done = servetwin("techniques", "--scenario", path, "--only", "kernel-fusion")
    assert done.code == 2
    assert "58.5 GB too much" in done.err


def test_effects_that_are_not_measured_are_not_there() -> None:
    effect = Effect(find_technique("kv-cache"), SMALL, refused="because")
    assert effect.changes == ()


def test_an_unsure_sign_gets_more_replications_and_a_sure_one_does_not() -> None:
    technique = find_technique("weight-int4")
    few, more = (Laboratory(0, 2, most).effect(technique, BASE, TINY) for most in (None, 8))
    assert "?" in {change.sign for change in few.changes}
    assert few.replications == 2
    assert more.replications in (4, 8)
    assert "?" not in {change.sign for change in more.changes} or more.replications == 8
    fixed = Laboratory(0, more.replications).effect(technique, BASE, TINY)
    assert fixed.changes == more.changes
    sure = Laboratory(0, 2, 8).effect(find_technique("weight-sharing"), BASE, TINY)
    assert sure.replications == 2


def test_the_figures_of_one_command_are_sure_of_all_signs() -> None:
    done = servetwin("techniques", "--only", "weight-int4")
    row = next(line for line in done.out.splitlines() if line.startswith("weight-int4"))
    assert "?" not in row
    assert "intervals over 10 draws of load and engine" in done.out


def test_what_is_on_already_and_what_cannot_hit_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    load = "{prompt_tokens: 64, output_tokens: 8, alone: 2, loaded: 8, saturated: 8}"
    own = "{model: llama-2-7b, gpu: h100, techniques: [fp8]}"
    path.write_text(f"deployment: {own}\nworkload: {load}\n")
    only = [f"--only={name}" for name in ("fp8", "kv-cache", "prefix-cache", "awq")]
    done = servetwin("techniques", "--scenario", path, *only, "--replications", 2)
    said = " ".join(done.out.split())
    assert "already enabled here, so the row is its effect: fp8, kv-cache " in said
    assert "prefix-cache cannot hit on this load: no two prompts share a prefix" in said
    assert (
        "not applicable: awq: techniques fp8 and awq exclude each other: both choose the for"
        in said
    )
