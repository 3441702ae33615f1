"""Invariants of number formats and compression, over drawn deployments and in whole runs."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Hardware
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.roofline.formats import BF16, Format
from servetwin.sim.step_times.roofline.server import check_bounds, memory_settings
from servetwin.sim.step_times.roofline.step_memory import ServerMemory
from servetwin.sim.techniques.compression import SemiStructuredSparsity, UnstructuredPruning
from servetwin.sim.techniques.effects import Laboratory
from servetwin.sim.techniques.quantisation import (
    BlockFormat,
    KVQuantisation,
    PhaseFormats,
    SmoothQuant,
    WeightInt8,
)
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace
from tests.support.number_techniques import (
    A100,
    H100,
    LLAMA,
    LLAMA_ON_A100,
    QUANTISATIONS,
    TECHNIQUES,
    ideal,
    name_of,
    products,
    seconds,
)

pytestmark = pytest.mark.slow


@st.composite
def devices(draw: st.DrawFn) -> Hardware:
    """A device whose 8-bit products are twice as fast as its bf16, by and large."""
    bf16 = 10 ** draw(st.floats(12, 15.5))
    narrow = bf16 * draw(st.sampled_from([1.0, 2.0, 4.0]))
    return H100.model_copy(
        update={
            "peak_flops_per_s": {"bf16": bf16, "int8": narrow, "fp8": narrow},
            "memory_bytes_per_s": 10 ** draw(st.floats(10.5, 13)),
        }
    )


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    efficiency = Efficiency(
        compute=draw(st.floats(0.2, 1)),
        memory=draw(st.floats(0.2, 1)),
        overhead_s=draw(st.sampled_from([0.0, 1e-3])),
        knee=draw(st.sampled_from([1.0, 2.0, 3.5, inf])),
    )
    model = find_model(draw(st.sampled_from(["llama-2-7b", "llama-3-8b", "opt-13b"])))
    return Deployment(model, draw(devices()), efficiency)


@st.composite
def shapes(draw: st.DrawFn) -> BatchShape:
    count = draw(st.integers(0, 512))
    chunks = draw(st.lists(st.tuples(st.integers(0, 2000), st.integers(2, 4096)), max_size=2))
    contexts = count * draw(st.integers(1, 4096))
    return BatchShape(count or int(not chunks), contexts or int(not chunks), 0, tuple(chunks))


def most_speed_up(before: Format, after: Format, hardware: Hardware) -> float:
    """The larger of the ratio of bytes and that of FLOP/s."""
    rates = [hardware.peak(f.compute) * f.compute_share for f in (after, before)]
    return max(1.0, before.weight_bytes / after.weight_bytes, rates[0] / rates[1])


CHANGES_OF_FORMAT = (
    *QUANTISATIONS,
    PhaseFormats(),
    UnstructuredPruning(),
    SemiStructuredSparsity(),
)


@pytest.mark.parametrize("technique", CHANGES_OF_FORMAT, ids=name_of)
@given(deployment=deployments(), shape=shapes())
def test_no_speed_up_exceeds_the_ratio_of_bytes_or_flops(
    technique: Technique, deployment: Deployment, shape: BatchShape
) -> None:
    after = technique.apply(Setup.of(deployment)).deployment
    form = after.prefill if shape.prefill_chunks else after.decode
    faster = seconds(deployment, shape) / seconds(after, shape)
    assert faster <= most_speed_up(BF16, form, deployment.hardware) * (1 + 1e-9)


@given(deployment=deployments(), shape=shapes())
def test_quantised_kv_is_never_faster_than_half_the_bytes_nor_slower_than_none(
    deployment: Deployment, shape: BatchShape
) -> None:
    after = KVQuantisation().apply(Setup.of(deployment)).deployment
    assert 1 - 1e-9 <= seconds(deployment, shape) / seconds(after, shape) <= 2 * (1 + 1e-9)


@given(deployment=deployments(), shape=shapes(), sizes=st.tuples(*[st.floats(0.1, 4)] * 2))
def test_a_step_takes_no_less_with_more_bits(
    deployment: Deployment, shape: BatchShape, sizes: tuple[float, float]
) -> None:
    few, many = (ideal("int8", size) for size in sorted(sizes))
    assert (
        seconds(replace(deployment, prefill=few, decode=few), shape)
        <= seconds(replace(deployment, prefill=many, decode=many), shape) + 1e-12
    )


@given(deployments())
def test_weight_only_gains_nothing_past_the_ridge(deployment: Deployment) -> None:
    """The more rows, the nearer to 1, the nearer the sharper the knee."""
    efficiency = deployment.efficiency
    int8 = replace(deployment, prefill=ideal("int8"))
    ridge = deployment.hardware.ridge_flops_per_byte() * efficiency.compute / efficiency.memory
    counts = [max(1, round(ridge * factor)) for factor in (0.1, 1, 10, 100)]
    gains = [products(deployment, rows) / products(int8, rows) for rows in counts]
    assert all(fewer >= more - 1e-9 for fewer, more in pairwise(gains))
    if efficiency.knee >= 2 and ridge > 1:
        assert gains[-1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("technique", TECHNIQUES, ids=name_of)
def test_all_change_numbers_and_none_takes_more_memory(technique: Technique) -> None:
    without = Setup.of(replace(LLAMA_ON_A100, hardware=H100))
    with_it = technique.apply(without)
    assert not technique.lossless
    assert technique.family == "numbers"
    assert with_it.deployment.weight_bytes() <= without.deployment.weight_bytes()
    before, after = (memory_settings(s.deployment, s.policies) for s in (without, with_it))
    assert after.kv_tokens > before.kv_tokens


def saturated(setup: Setup) -> Run:
    requests = tuple(Request(f"r{i}", 0.0, 400 + 10 * (i % 20), 100) for i in range(100))
    return run_once(Trace(requests, "saturated"), setup.scenario())


def test_w8a8_raises_throughput_and_admits_more() -> None:
    hardware = find_hardware("a100-40gb")
    base = Setup.of(Deployment(find_model("llama-2-13b"), hardware, memory=ServerMemory(0.9)))
    before, after = saturated(base), saturated(SmoothQuant().apply(base))
    throughputs = [r.summary()["output_throughput_tokens_per_s"] for r in (before, after)]
    assert 1.3 * throughputs[0] < throughputs[1]
    assert before.steps["decode_sequences"].max() * 2 < after.steps["decode_sequences"].max()
    tokens = [r.requests["output_tokens"].tolist() for r in (before, after)]
    assert tokens[0] == tokens[1]


LOADS = ("ttft_alone", "tps_alone", "throughput")


def test_quantised_products_better_all_three_and_quantised_weights_leave_the_first_token() -> None:
    """The note's row for quantisation, + + +, and what it takes: products in int8."""
    base, laboratory = Setup.of(Deployment(LLAMA, A100)), Laboratory(replications=3)
    effects = [laboratory.effect(t, base, Experiment()) for t in (SmoothQuant(), WeightInt8())]
    assert [effects[0].of(metric).sign for metric in LOADS] == ["+", "+", "+"]
    assert effects[1].of("tps_alone").sign == "+"
    ttft = effects[1].of("ttft_alone").change
    assert ttft is not None
    assert abs(ttft) < 0.05


@pytest.mark.parametrize("technique", TECHNIQUES, ids=name_of)
def test_every_technique_runs_within_the_bounds_of_its_device(technique: Technique) -> None:
    ideal_server = Setup.of(replace(LLAMA_ON_A100, hardware=H100))
    setup = technique.apply(ideal_server)
    run = saturated(setup)
    check_bounds(run.steps, setup.deployment)
    assert (run.requests["status"] == "finished").all()


@pytest.mark.parametrize(
    "technique",
    [SmoothQuant(scales="dynamic"), BlockFormat(format="iq1_s"), KVQuantisation(format="int4")],
    ids=repr,
)
@given(
    st.lists(
        st.tuples(st.floats(0, 2), st.integers(1, 800), st.integers(1, 60)), min_size=1, max_size=12
    )
)
def test_macro_steps_change_nothing(
    technique: Technique, drawn: list[tuple[float, int, int]]
) -> None:
    requests = tuple(Request(f"r{i}", *one) for i, one in enumerate(sorted(drawn)))
    scenario = technique.apply(Setup.of(LLAMA_ON_A100)).scenario()
    whole, single = (
        run_once(Trace(requests, "drawn"), scenario, macro=macro) for macro in (True, False)
    )
    assert whole.requests.equals(single.requests)
