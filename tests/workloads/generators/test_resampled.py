"""Other traffic of the same kind: what stays together, and what a copy has for itself."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from servetwin.workloads.generators.resampled import Resampling
from servetwin.workloads.reading import sample_trace
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


def made(gaps_s: list[float], **same: object) -> Trace:
    arrivals_s = np.cumsum(gaps_s).tolist()
    return Trace(
        tuple(
            replace(Request(f"r{place}", at_s, 10 + place % 7, 5), **same)  # type: ignore[arg-type]
            for place, at_s in enumerate(arrivals_s)
        ),
        "made",
    )


def draw(trace: Trace, seed: int = 0) -> Trace:
    return Resampling(trace).draw(np.random.default_rng(seed))


def poisson(seed: int, count: int) -> list[float]:
    return np.random.default_rng(seed).exponential(size=count).tolist()  # type: ignore[no-any-return]


def test_a_poisson_process_is_drawn_request_by_request_in_order() -> None:
    trace = made(poisson(3, 400))
    assert Resampling(trace).block == 1
    drawn = draw(trace)
    arrivals_s = [request.arrival_s for request in drawn]
    assert arrivals_s == sorted(arrivals_s)
    assert len(drawn) == len(trace)
    assert len({request.request_id for request in drawn}) == len(trace)
    left_out = {r.request_id for r in trace} - {r.request_id for r in drawn}
    assert len(left_out) == pytest.approx(400 / np.e, rel=0.15)
    assert draw(trace) == drawn
    assert draw(trace, seed=1) != drawn


def test_blocks_of_copies_are_of_no_sequence_alone() -> None:
    """Sequences name the blocks that only they have by negative numbers."""
    trace = made(poisson(3, 50), prefix_block_ids=(), block_tokens=16)
    own = tuple(replace(r, prefix_block_ids=(0, 1 + n)) for n, r in enumerate(trace))
    drawn = draw(trace.replaced(own, "with blocks"))
    ids = [request.prefix_block_ids for request in drawn]
    assert {first for first, _ in ids} == {0}
    assert len({second for _, second in ids}) == len(trace)
    assert min(map(min, ids)) >= 0


def test_copies_of_blocks_with_negative_numbers_have_others() -> None:
    """Readers refuse such numbers; a trace that a program makes may have them."""
    trace = made(poisson(3, 50), prefix_block_ids=(), block_tokens=16)
    own = tuple(replace(r, prefix_block_ids=(-200 - n,)) for n, r in enumerate(trace))
    drawn = [request.prefix_block_ids[0] for request in draw(replace(trace, requests=own))]
    assert len(set(drawn)) == 50
    copies = [block for block in drawn if block > -200]
    assert sorted(copies) == list(range(1, 1 + len(copies))) != []


def test_bursts_stay_together() -> None:
    """Twenty quick requests, then twenty slow ones: neighbours depend."""
    trace = made(([0.01] * 20 + [1.0] * 20) * 20)
    assert Resampling(trace).block > 10
    gaps_s = np.diff([request.arrival_s for request in draw(trace)])
    alike = np.isclose(gaps_s[1:], gaps_s[:-1])
    assert alike.mean() > 0.8


def test_a_conversation_is_drawn_as_a_whole() -> None:
    turns = [
        Request("a", 0.0, 10, 5),
        Request("b", 1.0, 10, 5),
        Request("a2", 2.5, 20, 5, parent_id="a", delay_s=1.0),
        Request("c", 3.0, 10, 5),
        Request("a3", 7.0, 30, 5, parent_id="a2", delay_s=1.0),
    ]
    for seed in range(20):
        drawn = draw(Trace(tuple(turns), "made"), seed)
        by_id = {request.request_id: request for request in drawn}
        for request in drawn:
            if request.parent_id is not None:
                parent = by_id[request.parent_id]
                apart_s = request.arrival_s - parent.arrival_s
                assert apart_s == pytest.approx(2.5 if parent.parent_id is None else 4.5)
        kinds = Counter(request.request_id.split("~")[0] for request in drawn)
        assert kinds["a"] == kinds["a2"] == kinds["a3"]


def test_a_copy_finds_in_the_cache_what_others_share_and_not_its_own_prompt() -> None:
    prompts = [Request(f"r{n}", float(n), 32, 5, (100, 200 + n), 16) for n in range(30)]
    drawn = draw(Trace(tuple(prompts), "made"))
    assert any("~" in request.request_id for request in drawn)
    assert {request.prefix_block_ids[0] for request in drawn} == {100}
    own = [request.prefix_block_ids[1] for request in drawn]
    assert len(set(own)) == len(own)


def test_a_trace_with_a_rate_stays_one_with_a_rate() -> None:
    trace = made([0.0] * 11 + [5.0])
    assert all(draw(trace, seed).span_s > 0 for seed in range(40))
    assert draw(made([0.0] * 12)).span_s == 0


def test_the_mean_length_is_that_of_the_trace() -> None:
    trace = sample_trace()
    resampling = Resampling(trace)
    rng = np.random.default_rng(0)
    means = [np.mean([r.total_tokens for r in resampling.draw(rng)]) for _ in range(50)]
    tokens = [request.total_tokens for request in trace]
    assert np.mean(means) == pytest.approx(np.mean(tokens), rel=0.02)
    assert np.std(means) == pytest.approx(np.std(tokens) / np.sqrt(len(trace)), rel=0.3)
