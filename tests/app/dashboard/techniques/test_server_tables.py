"""Operators of a server, and what bounds them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("streamlit", reason="the dashboard needs streamlit")
pytest.importorskip("plotly", reason="figures need plotly")
from servetwin.app.dashboard.techniques.server_panels import breakdowns, step_sentence
from servetwin.policies.batch import BatchShape
from servetwin.sim.step_times.roofline.breakdown import decode_breakdown, prefill_breakdown
from servetwin.sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment
from servetwin.sim.step_times.roofline.efficiency import IDEAL
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.techniques.registry import build_setup

DEPLOYMENTS = (
    (), ("tensor-parallel:ways=2",), ("pipeline-parallel",), ("fp8",), ("early-exit",),
    ("sliding-window",), ("state-space",), ("low-rank-kv",), ("flash-decoding",),
    ("weight-offload",), ("sparsity-2-4",), ("sequence-parallel",),
)  # fmt: skip


def deployment(techniques: tuple[str, ...] = (), model: str = "llama-3-8b") -> Deployment:
    return build_setup(model, "h100", techniques).deployment


@pytest.mark.parametrize("techniques", DEPLOYMENTS, ids=lambda names: "+".join(names) or "plain")
def test_operators_and_rest_are_the_simulators_step(techniques: tuple[str, ...]) -> None:
    found = deployment(techniques)
    context = (1000,) * 24
    decode = roofline_step_time(found).seconds(BatchShape(24, 24_000, 24, decode_contexts=context))
    prompt = roofline_step_time(found).seconds(BatchShape(0, 0, 0, ((0, 1000),)))
    for step, seconds in (
        (decode_breakdown(found, 24, 1000), float(decode[0])),
        (prefill_breakdown(found, 1000), float(prompt[0])),
    ):
        assert step.seconds == seconds
        taken_s = sum(placed.step_s for placed in step.operators)
        assert taken_s + step.rest_s == pytest.approx(seconds)
        assert step.share("memory") + step.share("compute") + step.rest_s / seconds == (
            pytest.approx(1)
        )


@given(
    st.sampled_from(DEPLOYMENTS), st.integers(1, 300), st.integers(16, 8000),
)  # fmt: skip
def test_no_operator_is_above_the_roof(
    techniques: tuple[str, ...], sequences: int, context: int
) -> None:
    found = deployment(techniques)
    bytes_per_s = found.hardware.memory_bytes_per_s
    for step in breakdowns(found, sequences, context).values():
        for placed in step.operators:
            roof = min(placed.flops_per_s, placed.operator.intensity * bytes_per_s)
            assert placed.attained_flops_per_s <= roof * (1 + 1e-9)


def test_ideal_operators_lie_on_the_roof() -> None:
    found = replace(deployment(), efficiency=IDEAL, kernels=IDEAL_KERNELS)
    step = decode_breakdown(found, 32, 2048)
    for placed in step.operators:
        roof = min(
            placed.flops_per_s, placed.operator.intensity * found.hardware.memory_bytes_per_s
        )
        assert placed.attained_flops_per_s == pytest.approx(roof)
    assert step.rest_s == pytest.approx(0, abs=1e-9), "rounded to 2^-48 s"


def test_decodes_are_memory_bound_and_long_prompts_compute_bound() -> None:
    steps = breakdowns(deployment(), 32, 2048)
    assert "0 % compute-bound" in step_sentence("decode", steps["decode"])
    bound = {p.operator.name: p.bound for p in steps["prefill"].operators}
    assert bound["FFN"] == bound["prefill attention"] == "compute"
    assert bound["head"] == "memory", "logits of one row"
