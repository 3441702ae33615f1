"""The knee between compute and memory, the host's seconds, and what known servers reach."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import (
    DEFAULT,
    Efficiency,
    expert_share,
    p_norm,
    served_efficiency,
)
from servetwin.sim.step_times.roofline.step_time import roofline_step_time


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3), st.floats(1, 16))
def test_the_knee_is_smooth_and_above_the_corner(a: float, b: float, p: float) -> None:
    assert max(a, b) <= p_norm(a, b, p) * (1 + 1e-12)
    assert p_norm(a, b, p) <= (a + b) * (1 + 1e-12)
    assert p_norm(a, b, float("inf")) == max(a, b)


def step_s(efficiency: Efficiency, decodes: int, chunks: int, model: str = "tiny") -> float:
    deployment = Deployment(find_model(model), find_hardware("h100"), efficiency)
    shape = BatchShape(decodes, 100 * decodes, decodes, ((0, 16),) * chunks)
    return float(roofline_step_time(deployment).seconds(shape)[0])


@given(st.integers(0, 64), st.integers(0, 8))
def test_the_host_takes_its_seconds_by_sequence_and_by_chunk(decodes: int, chunks: int) -> None:
    slower = replace(DEFAULT, sequence_s=1e-4, chunk_s=1e-2)
    if decodes + chunks:
        added_s = step_s(slower, decodes, chunks) - step_s(DEFAULT, decodes, chunks)
        assert added_s == pytest.approx(1e-4 * (decodes + chunks) + 1e-2 * chunks, abs=1e-9)


@pytest.mark.parametrize("share", [0.5, None])
def test_experts_have_a_share_of_their_own(share: float | None) -> None:
    slower = replace(DEFAULT, experts=share)
    assert step_s(slower, 8, 0) == step_s(DEFAULT, 8, 0)
    assert step_s(slower, 256, 8, "qwen3-30b-a3b") > step_s(DEFAULT, 256, 8, "qwen3-30b-a3b")


def test_narrow_experts_reach_less_of_the_peak() -> None:
    wide, narrow = (expert_share("mxfp4", "h100", width) for width in (2880, 360))
    assert 0 < narrow < 0.7 * wide < 1
    assert expert_share("fp8 weights", "a100-80gb", 512) == expert_share("gptq", "mi300x", 512)


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_known_servers_are_not_beyond_the_data_sheet(backend: str) -> None:
    for device in ("a100-80gb", "h100", "h200"):
        achieved = served_efficiency(backend, device)
        shares = (achieved.compute, achieved.memory, achieved.attention)
        assert all(0 < share <= 1 for share in shares)
        assert achieved.overhead_s + achieved.sequence_s + achieved.chunk_s > 0
        assert achieved != DEFAULT


def test_an_unknown_server_has_the_default() -> None:
    assert served_efficiency("another", "h100") == DEFAULT


def test_a_device_without_published_runs_has_the_default() -> None:
    """Shares of other devices were 9 to 25 points farther from two cards that no fit had seen."""
    assert served_efficiency("vllm", "rtx-4090") == DEFAULT


def test_versions_differ() -> None:
    assert served_efficiency("vllm", "h100", "0.8.5") != served_efficiency("vllm", "h100")
