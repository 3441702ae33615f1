"""Prompt blocks that the device has evicted come back from host memory, as hits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.engine.core.messages import Add
from servetwin.engine.kv.host_memory import PrefixTier
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.policies.config import PrefixIndex
from tests.support.effort import examples
from tests.support.moved_keys import SMALL, Served, plain_tokens, random_requests, serve

TIER = replace(SMALL, kv_tokens=60, prefix_cache=True, host_cache_tokens=4096)
SCHEDULERS = ["static", "insertion", "continuous", "chunked", "prefill-first", "unified"]
INDEXES = ["radix", "blocks"]


def tier(served: Served) -> PrefixTier:
    (mover,) = [mover for mover in served.movers if isinstance(mover, PrefixTier)]
    return mover


def hits(served: Served) -> int:
    return sum(tokens for record in served.log.records for _, tokens in record.hits)


def test_an_evicted_prompt_is_loaded_and_not_computed() -> None:
    """The second prompt takes the whole device; of the first, the host has five blocks."""
    first, second = list(range(300, 321)), list(range(400, 440))
    params = SamplingParams(3, ignore_eos=True)
    requests = [
        (0.0, Add("a", first, params)),
        (10.0, Add("b", second, params)),
        (20.0, Add("c", [*first, 7, 8], params)),
    ]
    config = replace(TIER, kv_tokens=44)
    served = serve(config, requests)
    (loaded,) = [record for record in served.log.records if record.swapped_tokens]
    assert loaded.hits == [("c", 20)]
    assert (loaded.entries, loaded.swapped_tokens) == ([("c", 20, 3, 0)], 20)
    assert tier(served).loaded_blocks == 5
    assert served.tokens == plain_tokens(requests)


@pytest.mark.parametrize(
    ("batching", "prefix_index"),
    [*((batching, "radix") for batching in SCHEDULERS), ("chunked", "blocks")],
)
def test_loading_changes_no_token_and_the_simulator_hits_alike(
    batching: str, prefix_index: PrefixIndex
) -> None:
    config = replace(TIER, batching=batching, prefix_index=prefix_index)
    requests = random_requests(5, count=14, shared_tokens=17)
    served = serve(config, requests)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)
    assert served.replayed(config).identical
    assert tier(served).loaded_blocks > 0
    assert served.swapped_tokens == tier(served).loaded_blocks * config.block_tokens
    without = serve(replace(config, host_cache_tokens=0), requests)
    assert hits(served) > hits(without)


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    batching=st.sampled_from(SCHEDULERS),
    prefix_index=st.sampled_from(INDEXES),
    host_cache_tokens=st.sampled_from([8, 40, 4096]),
    preemption=st.sampled_from(["recompute", "swap"]),
    prompt_blocks=st.sampled_from(["whole", "chunk"]),
    token_budget=st.sampled_from([8, 32]),
)
def test_random_loads_with_a_small_host(seed: int, **changes: object) -> None:
    config = replace(TIER, host_kv_tokens=64, **changes)  # type: ignore[arg-type]
    requests = random_requests(seed, count=9, shared_tokens=17)
    served = serve(config, requests)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests)
    assert served.replayed(config).identical
    assert len(tier(served)._kept) <= config.host_cache_tokens // config.block_tokens
