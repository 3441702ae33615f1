"""Number formats and compression: closed forms, laws, refusals, and a saturated run."""

import re
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.batch import BatchShape
from sim.experiments.predict import run_once
from sim.records.run import Run
from sim.shapes.catalogue import find_hardware, find_model
from sim.shapes.hardware import Hardware
from sim.step_times.roofline.bounds import check_bounds
from sim.step_times.roofline.deployment import IDEAL_KERNELS, Deployment, Parallel
from sim.step_times.roofline.efficiency import IDEAL, Efficiency
from sim.step_times.roofline.formats import (
    BF16,
    FORMATS,
    KV_FORMATS,
    Format,
    find_format,
    grouped_bytes,
    stored_weight_bytes,
)
from sim.step_times.roofline.links import Link
from sim.step_times.roofline.operators import decode_attention, linear_operators
from sim.step_times.roofline.server import memory_settings
from sim.step_times.roofline.step_cost import StepCost
from sim.step_times.roofline.step_time import roofline_step_time
from sim.techniques.compression import (
    Distillation,
    SemiStructuredSparsity,
    StructuredPruning,
    UnstructuredPruning,
    WeightSharing,
)
from sim.techniques.effects import Laboratory
from sim.techniques.experiment import Experiment
from sim.techniques.numbers import (
    AWQ,
    FP8,
    KVQuantisation,
    LLMInt8,
    PhaseFormats,
    SmoothQuant,
    WeightFormat,
    WeightInt4,
    WeightInt8,
    decomposed_share,
)
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from tests.support.paths import ROOT
from tests.support.technique_formulas import ideal_request_s
from tests.support.textbook import AffineGrid, distillation_loss
from workloads.errors import PolicyError, ServetwinError
from workloads.request import Request
from workloads.trace import Trace

PAGE = (ROOT / "docs/techniques/numbers.md").read_text()
A100, H100 = find_hardware("a100-80gb"), find_hardware("h100")
LLAMA, GPT3 = find_model("llama-2-7b"), find_model("gpt-3-175b")
LLAMA_ON_A100 = Deployment(LLAMA, A100, IDEAL, kernels=IDEAL_KERNELS)

QUANTISATIONS: tuple[WeightFormat, ...] = (
    WeightInt8(), WeightInt4(), AWQ(), LLMInt8(), SmoothQuant(), FP8()
)  # fmt: skip
TECHNIQUES: tuple[Technique, ...] = (
    *QUANTISATIONS,
    KVQuantisation(),
    PhaseFormats(),
    StructuredPruning(),
    UnstructuredPruning(),
    SemiStructuredSparsity(),
    Distillation(),
    WeightSharing(),
)


def name_of(technique: Technique) -> str:
    return technique.name


def ideal(name: str, weight_bytes: float | None = None) -> Format:
    """A format without what its kernels lose, and with weights of exactly so many bytes."""
    form = FORMATS[name]
    size = form.weight_bytes if weight_bytes is None else weight_bytes
    return replace(form, weight_bytes=size, compute_share=1.0, memory_share=1.0)


def seconds(deployment: Deployment, shape: BatchShape) -> float:
    return float(roofline_step_time(deployment).seconds(shape)[0])


def prompt(tokens: int) -> BatchShape:
    return BatchShape(0, 0, 0, ((0, tokens),))


def decodes(count: int, context: int) -> BatchShape:
    return BatchShape(count, count * context, count)


def times(form: Format, shape: BatchShape, on: Deployment = LLAMA_ON_A100) -> float:
    """Time in a format over the time in bf16."""
    return seconds(replace(on, prefill=form, decode=form), shape) / seconds(on, shape)


# --- quantisation and distillation as arithmetic


def test_the_grid_over_minus_one_to_three() -> None:
    grid = AffineGrid.over(-1, 3)
    assert grid.scale == pytest.approx(0.0156862745, abs=5e-11)
    assert grid.zero_point == pytest.approx(-64.25)
    assert grid.worst_error == pytest.approx(0.0078431, abs=5e-8)


def test_the_smallest_number_gets_the_lowest_code() -> None:
    """Z = Qmax - Rmin / S, as sometimes printed, would send the smallest to the highest."""
    grid = AffineGrid.over(-1, 3)
    assert grid.quantise(np.array([-1.0, 3.0, -9.0, 9.0])).tolist() == [-128, 127, -128, 127]
    assert grid.zero_point == pytest.approx(127 - 3 / grid.scale)
    printed = replace(grid, zero_point=127 + 1 / grid.scale)
    assert printed.quantise(np.array([-1.0])).tolist() == [127]


@pytest.mark.parametrize("bounds", [(3, 3), (3, -1)])
def test_no_grid_over_an_empty_range(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        AffineGrid.over(*bounds)


@given(
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
    st.integers(2, 8),
    st.lists(st.floats(0, 1), min_size=1),
)
def test_no_number_in_the_range_is_off_by_more_than_half_a_step(
    smallest: float, width: float, bits: int, places: list[float]
) -> None:
    grid = AffineGrid.over(smallest, smallest + width, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = smallest + width * np.array(places)
    errors = np.abs(grid.restore(grid.quantise(values)) - values)
    assert errors.max() <= grid.worst_error * (1 + 1e-6)
    assert (np.diff(grid.quantise(np.sort(values))) >= 0).all()


def test_distillation_loss() -> None:
    teacher, softened, student = (
        np.array(p) for p in ([0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2])
    )
    loss = distillation_loss(teacher, softened, student, np.array([1.0, 0, 0]), 0.7)
    assert loss == pytest.approx(0.7879859, abs=5e-8)


# --- bytes and descriptors


@pytest.mark.parametrize(
    ("name", "size"),
    [("fp32", 4), ("bf16", 2), ("fp8", 1), ("int8", 1), ("w8a8", 1), ("llm-int8", 1.01)],
)
def test_bytes_per_weight(name: str, size: float) -> None:
    assert find_format(name).weight_bytes == pytest.approx(size)


def test_group_scales_have_their_weight() -> None:
    assert grouped_bytes(4, 128, zero_bits=16) - 0.5 == pytest.approx(0.03, abs=5e-3)
    assert FORMATS["int4"].weight_bytes == FORMATS["awq"].weight_bytes == 0.53125
    assert 8 * grouped_bytes(4, 32) == 4.5  # q4_0: 32 weights in 18 bytes


@pytest.mark.parametrize(
    ("bits", "gigabytes"),
    [(1.5, 1.263), (2, 1.685), (3, 2.527), (4, 3.369), (5, 4.211), (6, 5.054), (8, 6.738),
     (16, 13.476)],
)  # fmt: skip
def test_weights_of_llama_2_7b(bits: float, gigabytes: float) -> None:
    form = ideal("int8", bits / 8)
    deployment = replace(LLAMA_ON_A100, prefill=form, decode=form)
    assert round(deployment.weight_bytes() / 1e9, 3) == gigabytes


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_fewer_bytes_never_keep_more_quality(form: Format) -> None:
    smaller = [f for f in FORMATS.values() if f.weight_bytes < form.weight_bytes]
    assert all(other.quality_bits <= form.quality_bits for other in smaller)
    assert form.lossless == (form.quality_bits >= 16)
    assert form.memory_share <= 1
    assert form.compute_share <= 1
    assert form.quality_bits <= 8 * form.weight_bytes * 1.1


def test_awq_at_three_bits_may_be_as_much_faster_as_was_measured() -> None:
    """The lecture has 4 times less memory at 4 bits, 3.2 times the speed at 3 bits."""
    deployment = AWQ(bits=3).apply(Setup.of(LLAMA_ON_A100)).deployment
    assert deployment.decode.name == "awq int3"
    faster = seconds(LLAMA_ON_A100, decodes(1, 128)) / seconds(deployment, decodes(1, 128))
    assert 3.2 < faster < 16 / 3
    assert BF16.weight_bytes / FORMATS["awq"].weight_bytes == pytest.approx(4, rel=0.07)
    assert AWQ(bits=3).form().quality_bits < AWQ().form().quality_bits
    assert WeightInt4(group=32).form().weight_bytes > WeightInt4().form().weight_bytes


def test_unknown_formats_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(PolicyError, match="unknown 'int88'; did you mean 'int8'"):
        find_format("int88")


# --- what the formats do to a step


def products(deployment: Deployment, rows: int) -> float:
    """Seconds of the layers' products alone: a step's, but for its overhead and KV write."""
    efficiency = deployment.efficiency
    written = rows * deployment.kv_bytes_per_token() / deployment.hardware.memory_bytes_per_s
    step_s = StepCost(replace(deployment, kernels=IDEAL_KERNELS)).rows_s(rows, 0, True)
    return step_s - efficiency.overhead_s - efficiency.seconds(0.0, written)


def test_w8a8_halves_a_long_prompt_and_a_lonely_decode() -> None:
    w8a8 = ideal("w8a8")
    deployment = replace(LLAMA_ON_A100, prefill=w8a8, decode=w8a8)
    assert products(deployment, 2048) == pytest.approx(products(LLAMA_ON_A100, 2048) / 2)
    assert times(w8a8, prompt(2048)) == pytest.approx(0.5, abs=0.025)  # its attention stays bf16
    assert times(w8a8, decodes(1, 128)) == pytest.approx(0.5, abs=0.005)


def test_weight_only_int8_leaves_a_long_prompt_and_halves_a_short_one() -> None:
    int8 = ideal("int8")
    assert times(int8, prompt(2048)) == pytest.approx(1.0, abs=1e-3)
    assert times(int8, prompt(32)) == pytest.approx(0.5, abs=0.005)


def test_smooth_quant_computes_at_twice_the_peak_and_beats_what_the_paper_measured() -> None:
    deployment = SmoothQuant().apply(Setup.of(LLAMA_ON_A100)).deployment
    assert A100.peak(deployment.prefill.compute) == 2 * A100.peak("bf16")
    assert 1.56 < 1 / times(deployment.prefill, prompt(512)) <= 2


@pytest.mark.parametrize("batch", [1, 8])
def test_llm_int8_decodes_slower_than_fp16(batch: int) -> None:
    """15 to 23 % by the lecture."""
    form = LLMInt8().apply(Setup.of(LLAMA_ON_A100)).deployment.decode
    assert 1.15 < times(form, decodes(batch, 32)) < 1.23


def test_llm_int8_gains_with_prompts_of_wide_models_only() -> None:
    """As fast as fp16 in models of 6.7e9 weights, slower in smaller, faster in larger ones."""
    shares = [2 * decomposed_share(width) for width in (768, 4096, 12288)]
    assert shares[0] < 0.5
    assert shares[1] == 1
    assert 1.3 < shares[2] < 1.81  # measured at 175e9 weights: about 1.8
    wide = replace(LLAMA_ON_A100, model=GPT3)
    form = replace(FORMATS["llm-int8"], compute_share=decomposed_share(GPT3.width))
    assert times(form, prompt(2048), wide) < 0.75


def test_quantised_kv_halves_what_attention_reads_and_doubles_what_fits() -> None:
    without = Setup.of(LLAMA_ON_A100)
    with_it = KVQuantisation().apply(without)
    read = [
        decode_attention(s.deployment, LLAMA.layers[0].mixer, 1000, 32).moved_bytes
        for s in (without, with_it)
    ]
    assert read[1] == read[0] / 2
    kv_tokens = [s.scenario().policies.kv_tokens for s in (without, with_it)]
    assert kv_tokens[1] == pytest.approx(2 * kv_tokens[0], abs=1)
    scaled = KVQuantisation(format="int8").apply(without).scenario().policies.kv_tokens
    assert scaled == pytest.approx(kv_tokens[0] * 2 / KV_FORMATS["int8"], abs=1)


# --- a format for each phase


@pytest.mark.parametrize(
    ("prefill", "decode", "total_s"),
    [
        (BF16, BF16, 5.482),
        (ideal("int8"), ideal("int8"), 2.811),
        (ideal("llm-int8", 1), ideal("int8"), 2.741),
        (ideal("int4", 0.5), ideal("int4", 0.5), 1.475),
    ],
)
def test_formats_of_the_phases_of_175b(prefill: Format, decode: Format, total_s: float) -> None:
    """1000 tokens in, 250 out, 350 GB of fp16 weights on eight A100; the operators add KV."""
    free = Parallel(tensor=8, link=Link(0.0, inf))
    deployment = Deployment(
        GPT3, A100, IDEAL, prefill, decode, kernels=IDEAL_KERNELS, parallel=free
    )
    ideal_s = ideal_request_s(deployment, 175e9, 1000, 250)
    assert round(ideal_s, 3) == total_s
    model = roofline_step_time(deployment)
    steps_s = model.seconds(prompt(1000)).sum() + model.seconds(decodes(1, 1001), 249).sum()
    kv_s = 249 * 1125 * deployment.kv_bytes_per_token() / (8 * A100.memory_bytes_per_s)
    assert steps_s == pytest.approx(ideal_s + kv_s, rel=5e-3)


def test_phases_share_int8_weights_and_keep_others_twice() -> None:
    shared = PhaseFormats().apply(Setup.of(LLAMA_ON_A100)).deployment
    assert shared.weight_bytes() == LLAMA.params()
    assert stored_weight_bytes(FORMATS["llm-int8"], FORMATS["int8"]) == pytest.approx(1.01)
    twice = PhaseFormats(prefill="w8a8", decode="awq").apply(Setup.of(LLAMA_ON_A100)).deployment
    assert twice.weight_bytes() == pytest.approx(1.53125 * LLAMA.params())


def test_each_phase_is_timed_in_its_own_format() -> None:
    deployment = (
        PhaseFormats(prefill="w8a8", decode="awq").apply(Setup.of(LLAMA_ON_A100)).deployment
    )
    of_prompt = replace(LLAMA_ON_A100, prefill=FORMATS["w8a8"], decode=FORMATS["w8a8"])
    of_decode = replace(LLAMA_ON_A100, prefill=FORMATS["awq"], decode=FORMATS["awq"])
    assert seconds(deployment, prompt(512)) == seconds(of_prompt, prompt(512))
    assert seconds(deployment, decodes(8, 300)) == seconds(of_decode, decodes(8, 300))
    mixed = BatchShape(8, 2400, 8, ((0, 512),))
    assert seconds(deployment, mixed) == seconds(of_prompt, mixed)


# --- devices that lack a precision


def without_peaks(*missing: str) -> Hardware:
    peaks = {p: peak for p, peak in H100.peak_flops_per_s.items() if p not in missing}
    return H100.model_copy(update={"peak_flops_per_s": peaks, "name": "plain"})


@pytest.mark.parametrize("technique", [SmoothQuant(), LLMInt8(), PhaseFormats()], ids=name_of)
def test_int8_products_need_a_device_that_has_them(technique: Technique) -> None:
    setup = Setup.of(replace(LLAMA_ON_A100, hardware=without_peaks("int8")))
    with pytest.raises(PolicyError, match=rf"{technique.name}: plain has no int8 peak"):
        technique.apply(setup)


def test_fp8_is_weight_only_where_there_are_no_fp8_products() -> None:
    on_a100 = FP8().apply(Setup.of(LLAMA_ON_A100)).deployment
    assert on_a100.prefill.name == "fp8 weights"
    assert on_a100.weight_bytes() == LLAMA.params()
    assert products(on_a100, 2048) > products(LLAMA_ON_A100, 2048)
    here = replace(LLAMA_ON_A100, hardware=H100)
    on_h100 = FP8().apply(Setup.of(here)).deployment
    assert products(on_h100, 2048) == pytest.approx(products(here, 2048) * 989 / 1979)


# --- compression of the model itself


def test_structured_pruning_leaves_a_smaller_model() -> None:
    pruned = StructuredPruning(kept_heads=0.75, kept_ffn=0.5).apply(Setup.of(LLAMA_ON_A100))
    model, group = pruned.deployment.model, pruned.deployment.model.layers[0]
    assert model.kv_elements_per_token() == 0.75 * LLAMA.kv_elements_per_token()
    attention, ffn = 4 * 4096 * 4096, 3 * 4096 * 11008
    assert model.linear_params() == 32 * (0.75 * attention + 0.5 * ffn)
    assert group.mixer.kv_groups() == 24
    faster = seconds(LLAMA_ON_A100, prompt(2048)) / seconds(pruned.deployment, prompt(2048))
    assert 1 < faster < LLAMA.linear_params() / model.linear_params()


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-8b"])
def test_every_kind_of_attention_and_ffn_can_be_pruned(name: str) -> None:
    model = find_model(name)
    parallel = Parallel(tensor=8)
    setup = Setup.of(Deployment(model, H100, parallel=parallel))
    pruned = StructuredPruning(kept_heads=0.5, kept_ffn=0.5).apply(setup).deployment.model
    assert pruned.linear_params() < 0.6 * model.linear_params()
    assert StructuredPruning(kept_heads=1, kept_ffn=1).apply(setup).deployment.model.layers == (
        model.layers
    )


def test_recurrent_layers_have_no_heads_to_prune() -> None:
    mamba = Setup.of(replace(LLAMA_ON_A100, model=find_model("mamba-2.8b")))
    with pytest.raises(PolicyError, match="have no heads; set kept_heads to 1"):
        StructuredPruning().apply(mamba)
    assert StructuredPruning(kept_heads=1).apply(mamba).deployment.model.layer_count == 64


def test_unstructured_pruning_saves_memory_and_no_time() -> None:
    sparse = UnstructuredPruning(sparsity=0.5).apply(Setup.of(LLAMA_ON_A100)).deployment
    assert sparse.weight_bytes() == pytest.approx((0.5 * 2 + 0.125) * LLAMA.params())
    for shape in (prompt(512), decodes(1, 128)):
        assert seconds(sparse, shape) == seconds(LLAMA_ON_A100, shape)


def test_each_round_of_pruning_drops_a_share_of_what_is_left() -> None:
    pruned = UnstructuredPruning(sparsity=0.2, rounds=3).apply(Setup.of(LLAMA_ON_A100)).deployment
    assert pruned.decode.bytes_in_memory == pytest.approx(0.8**3 * 2 + 0.125)
    assert pruned.decode.quality_bits == pytest.approx(0.512 * 16)


@pytest.mark.parametrize(("name", "ratio"), [("bf16", 0.5625), ("int8", 0.625), ("w8a8", 0.625)])
def test_two_of_four_weights(name: str, ratio: float) -> None:
    form = FORMATS[name]
    dense = replace(LLAMA_ON_A100, prefill=form, decode=form)
    sparse = SemiStructuredSparsity().apply(Setup.of(dense)).deployment
    assert sparse.weight_bytes() == pytest.approx(ratio * dense.weight_bytes())
    bytes_read = [linear_operators(d, 1, False)[0].moved_bytes for d in (dense, sparse)]
    assert bytes_read[1] == pytest.approx(ratio * bytes_read[0])
    assert products(sparse, 4096) == pytest.approx(products(dense, 4096) / 2)


def test_shared_layers_save_memory_and_no_time() -> None:
    shared = WeightSharing(layers=4).apply(Setup.of(LLAMA_ON_A100)).deployment
    saved = LLAMA_ON_A100.weight_bytes() - shared.weight_bytes()
    assert saved == pytest.approx(0.75 * 2 * LLAMA.linear_params())
    for shape in (prompt(512), decodes(1, 128)):
        assert seconds(shared, shape) == seconds(LLAMA_ON_A100, shape)


def test_a_student_serves_in_its_own_shape() -> None:
    setup = Distillation(student="tinyllama-1.1b").apply(Setup.of(LLAMA_ON_A100))
    assert setup.deployment.model == find_model("tinyllama-1.1b")
    assert setup.policies.max_model_len == setup.deployment.model.max_model_len


@pytest.mark.parametrize(
    ("technique", "model", "reason"),
    [
        (Distillation(student="llama-2-13b"), "llama-2-7b", "is not smaller than llama-2-7b"),
        (Distillation(student="llama-2-8b"), "llama-2-7b", "did you mean"),
        (StructuredPruning(kept_heads=0.7), "llama-2-7b", "leaves 22.4, not a whole number"),
        (StructuredPruning(kept_heads=0.5), "qwen3-30b-a3b", None),
        (StructuredPruning(kept_heads=0.9), "llama-3-8b", "0.9 of the 32"),
        (UnstructuredPruning(sparsity=0.05), "llama-2-7b", "sparsity must be above 0.0625"),
        (WeightSharing(layers=3), "llama-2-7b", "32 equal layers, which 3 at a time"),
        (KVQuantisation(), "mamba-2.8b", "keeps no keys and values"),
    ],
)
def test_what_makes_no_sense_is_refused(
    technique: Technique, model: str, reason: str | None
) -> None:
    setup = Setup.of(Deployment(find_model(model), find_hardware("h200")))
    if reason is None:
        technique.apply(setup)
    else:
        with pytest.raises(ServetwinError, match=re.escape(reason)):
            technique.apply(setup)


@pytest.mark.parametrize(
    ("technique", "parameters"),
    [
        (PhaseFormats, {"prefill": "int9"}),
        (KVQuantisation, {"format": "int2"}),
        (AWQ, {"bits": 1}),
        (WeightSharing, {"layers": 1}),
        (StructuredPruning, {"kept_ffn": 0}),
        (UnstructuredPruning, {"sparsity": 1}),
        (WeightInt4, {"group": 0}),
    ],
)
def test_impossible_parameters_are_refused(
    technique: type[Technique], parameters: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=next(iter(parameters))):
        technique(**parameters)


# --- laws


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


# --- a saturated run


def saturated(setup: Setup) -> Run:
    requests = tuple(Request(f"r{i}", 0.0, 400 + 10 * (i % 20), 100) for i in range(100))
    return run_once(Trace(requests, "saturated"), setup.scenario())


def test_w8a8_raises_throughput_and_admits_more() -> None:
    hardware = find_hardware("a100-40gb")
    base = Setup.of(Deployment(find_model("llama-2-13b"), hardware))
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


# --- the page


def rows(heading: str) -> list[list[str]]:
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-|: ]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_the_page_has_every_format() -> None:
    expected = [
        [f"`{f.name}`", f"{f.weight_bytes:.4g}", f.compute, f"{f.compute_share:.4g}",
         f"{f.memory_share:.2g}", str(f.activation_bits), f.calibration, f"{f.quality_bits:g}"]
        for f in FORMATS.values()
    ]  # fmt: skip
    assert rows("format") == expected


SHAPES = [
    *(decodes(count, 512) for count in (1, 16, 128)),
    *(prompt(tokens) for tokens in (32, 128, 512, 2048)),
]


def test_the_picture_of_the_page_is_what_the_formats_do() -> None:
    drawn = {code: cells for code, *cells in rows("time / bf16")}
    setup = Setup.of(LLAMA_ON_A100)
    expected = {
        f"`{technique.name}`": [
            f"{seconds(technique.apply(setup).deployment, s) / seconds(LLAMA_ON_A100, s):.2f}"
            for s in SHAPES
        ]
        for technique in (*QUANTISATIONS[:2], *QUANTISATIONS[3:5], PhaseFormats(),
                          SemiStructuredSparsity(), KVQuantisation())
    }  # fmt: skip
    assert drawn == expected


@pytest.mark.parametrize("technique", TECHNIQUES, ids=name_of)
def test_every_technique_has_its_section(technique: Technique) -> None:
    assert re.search(rf"^## {re.escape(technique.name)}$", PAGE, re.MULTILINE)
