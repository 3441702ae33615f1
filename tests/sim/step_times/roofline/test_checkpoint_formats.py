"""The parts of a model have the formats of its checkpoint, as the device runs them."""

from dataclasses import replace

import pytest

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.formats import FORMATS
from servetwin.sim.step_times.roofline.parallel import Parallel
from servetwin.workloads.errors import PolicyError


def deployment(model: str, device: str, layout: str = "tp=1") -> Deployment:
    parallel = Parallel.of(Layout.parse(layout))
    return Deployment(find_model(model), find_hardware(device), parallel=parallel)


@pytest.mark.parametrize(
    ("model", "gigabytes"),
    [
        # 669.2 GB of fp8 and 1.85 GB more of embedding and head
        ("deepseek-v3", 672.9),
        ("gpt-oss-120b", 65.2),  # the published files: 65.2 GB
        ("Qwen2.5-7B-Instruct-AWQ", 5.57),  # the published files: 5.57 GB
    ],
)
def test_weights_weigh_what_the_checkpoint_does(model: str, gigabytes: float) -> None:
    weight_bytes = deployment(model, "h200").target_weight_bytes()
    assert weight_bytes / 1e9 == pytest.approx(gigabytes, rel=0.04)


def test_a_format_that_the_device_lacks_is_weight_only_or_refused() -> None:
    native, emulated = deployment("deepseek-v3", "h200"), deployment("deepseek-v3", "a100")
    assert native.form(False).compute == "fp8"
    assert (emulated.form(False).compute, emulated.form(False).weight_bytes) == ("bf16", 1 + 2**-12)
    assert deployment("nvidia/DeepSeek-R1-FP4", "h100").form(False, "experts").compute == "bf16"
    assert deployment("nvidia/DeepSeek-R1-FP4", "b200").form(False, "experts").compute == "fp4"
    with pytest.raises(
        PolicyError, match="mi300x runs no nvfp4 weights; take a checkpoint in bf16"
    ):
        deployment("nvidia/DeepSeek-R1-FP4", "mi300x")


def test_a_technique_replaces_the_formats_of_the_checkpoint() -> None:
    before = deployment("llama-3.3-70b-fp8", "h200")
    int4 = FORMATS["int4"]
    after = replace(before, prefill=int4, decode=int4)
    assert {after.form(False, part) for part in ("gemm", "experts", "head")} == {int4}


def test_keys_and_values_have_the_format_of_the_checkpoint() -> None:
    plain, small = (
        deployment(name, "h200").kv_bytes_per_token()
        for name in ("llama-3.1-70b", "nvidia/Llama-3.1-70B-Instruct-FP8")
    )
    assert plain == 2 * small


@pytest.mark.parametrize(
    ("layout", "groups", "expert_ranks"),
    [("tp=8", 1, 8), ("tp=8,ep=8", 1, 8), ("dp=8,ep=8", 8, 8), ("dp=8", 8, 8), ("tp=2,dp=4", 4, 8)],
)
def test_a_layout_says_the_widths(layout: str, groups: int, expert_ranks: int) -> None:
    parallel = Parallel.of(Layout.parse(layout))
    assert (parallel.devices, parallel.groups) == (8, groups)
    assert parallel.expert_ranks == expert_ranks
    assert parallel.layout == Layout.parse(layout)
