"""FLOPs and elements per token, KV sizes: the published table, its errors not copied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.batch import BatchShape
from sim.shapes.catalogue import find_hardware, find_model, shipped_models
from sim.step_times.roofline.decode_latency import ideal_deployment
from sim.step_times.roofline.memory import memory_sizes
from sim.step_times.roofline.roofline_estimate import RooflineEstimate
from sim.step_times.roofline.token_work import Work, token_work, total_work, with_ffn_matrices

LLAMA = find_model("llama-2-7b")
TWO = with_ffn_matrices(LLAMA, 2)
MILLION = 2**20


def millions(work: Work) -> tuple[float, float]:
    return work.flops / MILLION, work.elements / MILLION


@pytest.mark.parametrize(
    ("position", "attention", "total"),
    [
        (128, (64, 32), (9664, 4832)),
        (512, (256, 128), (9856, 4928)),
        (4096, (2048, 1024), (11648, 5824)),
        (32_768, (16384, 8192), (25984, 12992)),  # often printed as 8192, against its own total
    ],
)
def test_work_of_a_token_with_two_ffn_matrices(
    position: int, attention: tuple[int, int], total: tuple[int, int]
) -> None:
    work = token_work(TWO, position)
    assert millions(work["projections"]) == (4096, 2048)
    assert millions(work["attention"]) == attention
    assert millions(work["FFN"]) == (5504, 2752)
    assert millions(total_work(work)) == total


@pytest.mark.parametrize(("position", "flops"), [(128, 13.019e9), (32_768, 30.132e9)])
def test_work_of_a_token_with_the_three_that_it_has(position: int, flops: float) -> None:
    work = token_work(LLAMA, position)
    assert millions(work["FFN"]) == (8256, 4128)
    assert total_work(work).flops == pytest.approx(flops, abs=5e5)


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_every_position_adds_the_same(position: int, further: int) -> None:
    """4 d L FLOPs, 2 d L elements."""
    here, there = (total_work(token_work(LLAMA, p)) for p in (position, position + further))
    assert there.flops - here.flops == 524_288 * further
    assert there.elements - here.elements == 262_144 * further


@pytest.mark.parametrize("name", shipped_models())
def test_they_are_the_simulator_s_own(name: str) -> None:
    """Less the head and the KV that is written; at two bytes an element."""
    model, position = find_model(name), 3000
    shape = BatchShape(1, position, 1, decode_contexts=(position,))
    step = RooflineEstimate.of(ideal_deployment(model, find_hardware("h100")), shape)
    counted = [o for o in step.operators if o.name not in ("head", "KV write")]
    work = total_work(token_work(model, position))
    assert work.flops == pytest.approx(sum(o.flops for o in counted))
    assert 2 * work.elements == pytest.approx(sum(o.moved_bytes for o in counted))


@pytest.mark.parametrize(
    ("element_bytes", "per_token", "sequence"),
    [(2, 512 * 2**10, 16 * 2**30), (4, 2**20, 32 * 2**30)],
    ids=["fp16", "fp32"],
)
def test_kv_of_llama_2_7b(element_bytes: int, per_token: int, sequence: int) -> None:
    """262,144 elements a token, 2 L d; not 512 K, nor 2 MB, as sometimes printed."""
    assert LLAMA.kv_elements_per_token() == 2 * 32 * 4096 == 262_144
    sizes = memory_sizes(LLAMA, 32_768, kv_element_bytes=element_bytes)
    assert (sizes.kv_bytes_per_token, sizes.sequence_bytes) == (per_token, sequence)


def test_kv_of_a_sequence_of_llama_2_13b() -> None:
    """S K H L 2 at two bytes, and all memory of a batch: B of these beside 2 P."""
    model = find_model("llama-2-13b")
    assert memory_sizes(model, 1024).sequence_bytes == 1024 * 40 * 128 * 40 * 2 * 2 == 838_860_800
    assert memory_sizes(model, 1024).weight_bytes == 2 * 13_015_449_600


@given(st.integers(1, 10**5), st.integers(0, 10**5))
def test_kv_grows_with_the_context_and_never_beyond_a_window(context: int, further: int) -> None:
    windowed, plain = find_model("mistral-7b"), find_model("llama-3-8b")
    for model in (windowed, plain):
        here, there = (memory_sizes(model, c).sequence_bytes for c in (context, context + further))
        assert here <= there
    assert memory_sizes(windowed, context).sequence_bytes == min(context, 4096) * 131_072
    assert memory_sizes(plain, context).sequence_bytes == context * 131_072


def test_states_do_not_grow() -> None:
    model = find_model("mamba-2.8b")
    short, long = (memory_sizes(model, context) for context in (1, 10**6))
    assert short == long
    assert long.kv_bytes_per_token == 0
    assert long.sequence_bytes == long.state_bytes > 0


def test_sequences_fit_beside_the_weights_or_not_at_all() -> None:
    sizes = memory_sizes(LLAMA, 4096)
    assert sizes.sequences_in(80e9) == (80e9 - 2 * 6_738_149_376) // 2**31 == 30
    assert sizes.sequences_in(sizes.weight_bytes + 2**31) == 1
    assert sizes.sequences_in(13e9) == 0
