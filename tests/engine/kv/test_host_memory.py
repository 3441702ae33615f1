"""Preempted sequences go to host memory and come back: the same tokens, the same decisions."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from servetwin.engine.core.messages import Abort, Message
from servetwin.engine.kv.host_memory import SwapSpace
from tests.support.effort import examples
from tests.support.moved_keys import SMALL, Served, plain_tokens, random_requests, serve

SWAP = replace(SMALL, kv_tokens=64, preemption="swap", host_kv_tokens=4096)
SCHEDULERS = ["continuous", "chunked", "prefill-first", "unified"]


def space(served: Served) -> SwapSpace:
    (mover,) = [mover for mover in served.movers if isinstance(mover, SwapSpace)]
    return mover


@pytest.mark.parametrize("batching", SCHEDULERS)
@pytest.mark.parametrize("prefix_cache", [False, True], ids=["own", "shared"])
def test_swapping_changes_no_token_and_the_simulator_swaps_alike(
    batching: str, prefix_cache: bool
) -> None:
    config = replace(SWAP, batching=batching, prefix_cache=prefix_cache)
    requests = random_requests(3, count=10, shared_tokens=12 * prefix_cache)
    served = serve(config, requests)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)
    assert served.swapped_tokens > 50
    assert served.replayed(config).identical
    assert space(served)._kept == {}


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    batching=st.sampled_from(SCHEDULERS),
    host_kv_tokens=st.sampled_from([0, 24, 4096]),
    victim=st.sampled_from(["newest", "least-progress"]),
    admit=st.booleans(),
    prefix_index=st.sampled_from(["none", "radix", "blocks"]),
)
@example(93, "prefill-first", 4096, "newest", False, "blocks")  # back, and preempted at once
def test_random_loads_swap_without_a_trace(
    seed: int, batching: str, host_kv_tokens: int, victim: str, admit: bool, prefix_index: str
) -> None:
    changes = {
        "batching": batching,
        "host_kv_tokens": host_kv_tokens,
        "victim": victim,
        "admit_after_preemption": admit,
    }
    if prefix_index != "none":
        changes |= {"prefix_cache": True, "prefix_index": prefix_index}
    config = replace(SWAP, **changes)  # type: ignore[arg-type]
    requests = random_requests(seed, shared_tokens=9)
    served = serve(config, requests)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)
    assert served.replayed(config).identical
    if not host_kv_tokens:
        assert served.swapped_tokens == 0
    assert space(served)._kept == {}


@pytest.mark.parametrize("batching", SCHEDULERS)
def test_samples_of_a_prompt_are_swapped_each_on_its_own(batching: str) -> None:
    requests = random_requests(3, count=6, samples=3)
    served = serve(replace(SWAP, batching=batching, kv_tokens=80), requests)
    assert served.failures == []
    assert len(served.tokens) == 18
    assert served.tokens == plain_tokens(requests)
    assert served.swapped_tokens > 50


def test_a_full_host_recomputes_instead() -> None:
    requests = random_requests(3, count=10)
    full = serve(replace(SWAP, host_kv_tokens=20), requests)
    roomy = serve(SWAP, requests)
    assert 0 < full.swapped_tokens < roomy.swapped_tokens
    assert full.tokens == roomy.tokens


def test_an_abort_while_swapped_out_frees_the_host() -> None:
    requests = random_requests(3, count=10)
    log = serve(SWAP, requests).log.records
    first = next(record for record in log if record.swapped_tokens and record.preempted)
    (victim, *_) = first.preempted
    script: list[tuple[float, Message]] = [*requests, (first.now_s + 1.0, Abort(victim))]
    served = serve(SWAP, script)
    assert [r.preempted for r in served.log.records].count([victim]) == 1
    assert space(served)._kept == {}
    others = {name: tokens for name, tokens in plain_tokens(requests).items() if name != victim}
    assert {name: tokens for name, tokens in served.tokens.items() if name != victim} == others
    host = served.core.scheduler.swap  # type: ignore[attr-defined]
    assert host._free_tokens == SWAP.host_kv_tokens
