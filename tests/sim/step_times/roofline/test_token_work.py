"""FLOPs and elements of a token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.quantisation import Quantisation
from servetwin.sim.catalogue.shipped import shipped_models
from servetwin.sim.step_times.roofline.decode_latency import RooflineEstimate, ideal_deployment
from servetwin.sim.step_times.roofline.matrix_products import (
    Work,
    token_work,
    total_work,
    with_ffn_matrices,
)

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
    plain = {"quantisation": Quantisation()}
    model, position = find_model(name).model_copy(update=plain), 3000
    shape = BatchShape(1, position, 1, decode_contexts=(position,))
    step = RooflineEstimate.of(ideal_deployment(model, find_hardware("h100")), shape)
    counted = [o for o in step.operators if o.name not in ("head", "KV write")]
    work = total_work(token_work(model, position))
    assert work.flops == pytest.approx(sum(o.flops for o in counted))
    assert 2 * work.elements == pytest.approx(sum(o.moved_bytes for o in counted))
