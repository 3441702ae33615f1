"""Tensor, pipeline and expert parallelism: what a step takes, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.batch import BatchShape
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.experiments.predict import run_once
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.operators import Operator, head_operator, linear_operators
from servetwin.sim.step_times.roofline.step_cost import StepCost
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.step_time import UNIT_S
from servetwin.sim.techniques.parallel import Parallelism, PipelineParallel, TensorParallel
from servetwin.sim.techniques.setup import Setup
from servetwin.workloads.errors import PolicyError
from servetwin.workloads.trace import Trace
from tests.support.checked import request
from tests.support.formulas.techniques import bubble_share, makespan_s
from tests.support.parallel_techniques import (
    A100,
    FREE,
    GQA,
    MHA,
    MIXTURE,
    TECHNIQUES,
    ideal,
    rows_s,
)

EVEN_A100 = A100.model_copy(
    update={"peak_flops_per_s": {"bf16": 2.0**48}, "memory_bytes_per_s": 2.0**40}
)
"""Its times are whole numbers of 2^-48 s, so that halves are exact."""
LARGE: ModelShape = find_model("llama-2-70b")


def decodes(sequences: int, context_tokens: int) -> BatchShape:
    """Equal decodes."""
    return BatchShape(sequences, sequences * context_tokens, sequences)


def prompts(count: int, tokens: int) -> BatchShape:
    """Equal prompts."""
    return BatchShape(0, 0, 0, ((0, tokens),) * count)


def step_s(deployment: Deployment, shape: BatchShape) -> float:
    """How long a step takes."""
    return float(roofline_step_time(deployment).seconds(shape)[0])


def simulated(setup: Setup, requests: int = 6, prompt: int = 700, output: int = 30) -> Run:
    """So many equal requests at once."""
    trace = Trace(tuple(request(str(i), 0.0, prompt, output) for i in range(requests)), "equal")
    return run_once(trace, replace(setup, kv_tokens=20_000).scenario())


def test_a_given_figure_replaces_that_of_the_devices_own_link() -> None:
    setup = Setup.of(Deployment(GQA, A100))
    assert TensorParallel().apply(setup).deployment.link == Link(5e-6, 300e9)
    assert TensorParallel(latency_us=2).apply(setup).deployment.link == Link(2e-6, 300e9)
    both = PipelineParallel(gb_per_s=25).apply(TensorParallel(latency_us=2).apply(setup))
    assert both.deployment.link == Link(2e-6, 25e9)
    assert both.deployment.parallel.devices == 4


# All of them
@pytest.mark.parametrize(("technique", "model"), TECHNIQUES, ids=lambda part: str(part.name))
def test_sharing_changes_no_token_and_shortens_all_at_no_cost_of_messages(
    technique: Parallelism, model: ModelShape
) -> None:
    base = Setup.of(ideal(model, find_hardware("h200")))
    without, with_it = simulated(base), simulated(technique.apply(base))
    assert list(with_it.requests["output_tokens"]) == list(without.requests["output_tokens"])
    assert (with_it.requests["ttft_s"] < without.requests["ttft_s"]).all()


@given(
    st.sampled_from(["tensor", "pipeline", "sequence", "expert"]),
    st.sampled_from([2, 4, 8]),
    st.integers(0, 300),
    st.integers(1, 4000),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(2, 3000)), max_size=3),
    st.sampled_from([FREE, Link(5e-6, 300e9)]),
    st.booleans(),
)
def test_no_sharing_is_quicker_than_its_devices_are_many(
    kind: str,
    ways: int,
    sequences: int,
    context_tokens: int,
    chunks: list[tuple[int, int]],
    link: Link,
    zig_zag: bool,
) -> None:
    context = sequences * context_tokens
    shape = BatchShape(sequences, context, sequences, tuple(chunks))
    shared = ideal(MIXTURE, A100, link=link, zig_zag=zig_zag, **{kind: ways})
    alone_s = step_s(ideal(MIXTURE), shape)
    rounded_parts = context + len(chunks) + 2  # each to half a unit, on both sides
    slack_s = (1 + ways) * rounded_parts * UNIT_S / 2
    assert alone_s <= ways * step_s(shared, shape) + slack_s


# Tensor parallelism
@pytest.mark.parametrize("ways", [1, 2, 4, 8])
def test_the_shards_are_the_whole(ways: int) -> None:
    def on_a_device(tensor: int) -> list[Operator]:
        deployment = ideal(LARGE, tensor=tensor)
        linear = linear_operators(deployment, 5, False)
        return [*linear, head_operator(deployment, 5, False)]

    whole, shards = on_a_device(1), on_a_device(ways)
    assert sum(o.flops for o in whole) == 2 * 5 * (LARGE.linear_params() + 8192 * 32000)
    assert ways * sum(o.flops for o in shards) == sum(o.flops for o in whole)
    assert ways * sum(o.moved_bytes for o in shards) == sum(o.moved_bytes for o in whole)
    assert ideal(LARGE, tensor=ways).resident_weight_bytes() == 2 * LARGE.params()


def test_eighty_layers_sum_a_hundred_and_sixty_times_a_pass() -> None:
    a_second_each = ideal(LARGE, tensor=2, link=Link(1.0, inf))
    messages = rows_s(a_second_each, 1) - rows_s(ideal(LARGE, tensor=2), 1)
    assert messages == pytest.approx(160)


def test_two_devices_halve_every_stamp_exactly_where_messages_take_no_time() -> None:
    one = Setup.of(ideal(MHA, EVEN_A100))
    two = TensorParallel(ways=2).apply(one)
    alone, shared = simulated(one), simulated(two)
    for stamp in ("first_token_s", "last_token_s"):
        assert list(alone.requests[stamp]) == [2 * s for s in shared.requests[stamp]]
    assert list(alone.steps["end_s"]) == [2 * s for s in shared.steps["end_s"]]


def test_ranks_beyond_the_kv_heads_keep_copies() -> None:
    eight, sixteen = ideal(GQA, tensor=8), ideal(GQA, tensor=16)
    assert eight.kv_bytes_per_token() == 131_072
    assert sixteen.kv_bytes_per_token() == 2 * 131_072
    assert StepCost(sixteen).attention.context_s(4) == StepCost(eight).attention.context_s(4)
    assert StepCost(eight).attention.context_s(4) == pytest.approx(
        StepCost(ideal()).attention.context_s(4) / 8
    )


def test_ways_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(PolicyError, match="3 ways do not divide the 32 heads of llama-3-8b"):
        TensorParallel(ways=3).apply(Setup.of(ideal()))


# Pipeline parallelism
def test_a_quarter_of_the_time_is_bubble_with_four_stages_and_eight_pieces() -> None:
    assert f"{bubble_share(4, 8):.4f}" == "0.2727"
    stage_s = step_s(ideal(), prompts(1, 512)) / 4
    piped_s = step_s(ideal(pipeline=4, micro_batches=8), prompts(8, 512))
    assert piped_s == pytest.approx(makespan_s(4, [stage_s] * 8))
    assert 1 - 8 * stage_s / piped_s == pytest.approx(bubble_share(4, 8))


@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8])
def test_a_steady_pipeline_yields_a_token_each_as_often_as_it_has_stages_or_pieces(
    micro_batches: int,
) -> None:
    stage_s = step_s(ideal(), decodes(16 // micro_batches, 900)) / 4
    piped_s = step_s(ideal(pipeline=4, micro_batches=micro_batches), decodes(16, 900))
    assert piped_s == pytest.approx(max(4, micro_batches) * stage_s)
    busy = micro_batches * stage_s / piped_s
    assert busy == pytest.approx(min(1, micro_batches / 4))


def test_a_lone_prompt_passes_all_stages_and_the_hops_between() -> None:
    link = Link(3e-6, 50e9)
    hop_s = 3e-6 + 700 * 4096 * 2 / 50e9
    alone = simulated(Setup.of(ideal()), requests=1)
    piped = simulated(Setup.of(ideal(pipeline=4, link=link)), requests=1)
    later_s = piped.requests["ttft_s"][0] - alone.requests["ttft_s"][0]
    assert later_s == pytest.approx(3 * hop_s, rel=1e-6)


def flow_shop_s(stages: int, micro_batches_s: Sequence[float]) -> float:
    """Stage by stage: a piece starts when it has left the stage before and this one is free."""
    done_s = [0.0] * stages
    for piece_s in micro_batches_s:
        left_s = 0.0
        for stage in range(stages):
            done_s[stage] = left_s = max(left_s, done_s[stage]) + piece_s
    return done_s[-1]


@given(st.integers(1, 8), st.lists(st.floats(0, 10), min_size=1, max_size=8))
def test_the_makespan_is_that_of_a_flow_shop(stages: int, micro_batches_s: list[float]) -> None:
    expected_s = flow_shop_s(stages, micro_batches_s)
    assert makespan_s(stages, micro_batches_s) == pytest.approx(expected_s)


def test_equal_pieces_take_one_stage_time_for_each_and_for_each_stage_but_one() -> None:
    assert makespan_s(4, [0.25] * 8) == 0.25 * (8 + 4 - 1)


def test_a_long_prompt_behind_a_decode_leaves_a_bubble_of_the_difference() -> None:
    decode_s, prompt_s = 0.2, 1.15
    idle_s = makespan_s(2, [decode_s, prompt_s]) - decode_s - (decode_s + prompt_s)
    assert idle_s == pytest.approx(0.95)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(PolicyError, match="33 stages for 32 layers"):
        PipelineParallel(stages=33).apply(Setup.of(ideal()))


# Expert parallelism
@pytest.mark.parametrize(("ways", "tokens"), [(2, 64), (8, 64), (8, 8)])
def test_tokens_travel_to_their_experts_and_back(ways: int, tokens: int) -> None:
    link = Link(0.0, 50e9)
    added_s = rows_s(ideal(MIXTURE, expert=ways, link=link), tokens) - rows_s(
        ideal(MIXTURE, expert=ways), tokens
    )
    sent_bytes = tokens * 2 * 4096 * 2 / ways * (ways - 1) / ways
    assert added_s == pytest.approx(32 * 2 * sent_bytes / 50e9, rel=1e-6)


def test_experts_are_there_once_and_all_else_on_every_device() -> None:
    experts = 32 * 8 * 176_160_768
    others = MIXTURE.params() - experts
    assert ideal(MIXTURE, expert=8).resident_weight_bytes() == 2 * (experts + 8 * others)
    assert ideal(MIXTURE, expert=8, tensor=8).resident_weight_bytes() == 2 * MIXTURE.params()


def test_a_device_reads_its_share_of_the_touched_experts_and_its_own_sequences() -> None:
    shared = ideal(MIXTURE, expert=8)
    touched = 8 * (1 - 0.75**16)
    experts = next(o for o in linear_operators(shared, 2, False, 8) if o.name == "experts")
    router = 4096 * 8
    assert experts.moved_bytes == pytest.approx(32 * 2 * (touched * 176_160_768 + router) / 8)
    assert StepCost(shared).attention.context_s(16) == pytest.approx(
        StepCost(ideal(MIXTURE)).attention.context_s(16) / 8
    )
    assert StepCost(shared).attention.context_s(1) == StepCost(ideal(MIXTURE)).attention.context_s(
        1
    )


@pytest.mark.parametrize(
    ("model", "parallel", "reason"),
    [
        (GQA, {"expert": 2}, "llama-3-8b has no experts"),
        (MIXTURE, {"expert": 3}, "3 ways, but mixtral-8x7b has 8 experts"),
        (MIXTURE, {"expert": 4, "sequence": 6}, "4 ways and 6 .* do not divide one another"),
        (GQA, {"tensor": 0}, "tensor parallel: 0 ways; at least 1"),
    ],
)
def test_an_impossible_split_is_refused(
    model: ModelShape, parallel: dict[str, int], reason: str
) -> None:
    with pytest.raises(PolicyError, match=reason):
        ideal(model, A100, **parallel)


# Replicas
@pytest.mark.parametrize("replicas", [2, 5])
def test_replicas_multiply_throughput_and_leave_latency(replicas: int) -> None:
    one = Setup.of(ideal())
    many = replace(one, cluster=ClusterConfig(replicas=replicas))
    alone, together = simulated(one, 12), simulated(many, 12 * replicas)
    throughput = "output_throughput_tokens_per_s"
    assert together.summary()[throughput] == pytest.approx(
        replicas * alone.summary()[throughput], rel=1e-12
    )
    for latency in ("ttft_s", "e2e_s"):
        expected = sorted(list(alone.requests[latency]) * replicas)
        assert sorted(together.requests[latency]) == expected
