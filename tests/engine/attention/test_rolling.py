"""A memory that forgets: exactly the mask of the technique, and blocks that are used again."""

from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from servetwin.engine.attention.choose import attention_backend
from servetwin.engine.attention.rolling import RollingAttention
from servetwin.engine.core.messages import Add
from servetwin.engine.kv.forgetting import KeptTokens
from servetwin.engine.kv.kv_store import KVStore
from servetwin.engine.models.rotary import RotaryTable, rotary_frequencies, rotate
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.sequence import Sequence
from tests.support.effort import examples
from tests.support.moved_keys import MODEL, SMALL, plain_tokens, random_requests, serve

CPU = torch.device("cpu")
GROUP = MODEL.heads // MODEL.kv_heads
TOKENS, BLOCK_TOKENS = 60, 4
WINDOWED = replace(SMALL, kv="grouped", kv_groups="kept:12", kv_tokens=48)
SCHEDULERS = ["static", "continuous", "chunked", "prefill-first", "unified"]


def rows(seed: int, heads: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(TOKENS, heads, MODEL.head_dim, generator=generator)


def turned(heads: torch.Tensor, positions: list[int]) -> torch.Tensor:
    """Rotate in float64."""
    angles = torch.outer(torch.tensor(positions).double(), rotary_frequencies(MODEL, CPU).double())
    cos, sin = angles.cos().repeat(1, 2)[:, None], angles.sin()[:, None]
    return rotate(heads.double(), cos, torch.cat((-sin, sin), -1))


def streamed(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, kept: KeptTokens
) -> torch.Tensor:
    """What every token sees of a cache that holds the sinks and the last tokens, in float64; the
    position of a token is its place in the cache."""
    group, outputs = queries.shape[1] // keys.shape[1], []
    for position in range(TOKENS):
        first = max(kept.sinks, position + 1 - kept.window)
        cache = [*range(min(kept.sinks, position + 1)), *range(first, position + 1)]
        query = turned(queries[position : position + 1], [len(cache) - 1])[0]
        found = turned(keys[cache], list(range(len(cache)))).repeat_interleave(group, 1)
        scores = torch.einsum("hd,chd->hc", query, found) / MODEL.head_dim**0.5
        wide = values[cache].double().repeat_interleave(group, 1)
        outputs.append(torch.einsum("hc,chd->hd", scores.softmax(-1), wide))
    return torch.stack(outputs).flatten(1)


@settings(max_examples=examples(30), deadline=None)
@given(
    window=st.integers(1, 20),
    sinks=st.sampled_from([0, 0, 1, 4, 5]),
    cuts=st.sets(st.integers(1, TOKENS - 1), max_size=12),
    steps=st.integers(0, 20),
    inner=st.sampled_from(["native", "per-sequence"]),
    part_rows=st.sampled_from([1, 3, 64]),
)
def test_every_query_sees_what_the_technique_says(
    window: int, sinks: int, cuts: set[int], steps: int, inner: str, part_rows: int
) -> None:
    """In chunks, in parts of chunks and in single steps, whatever window and sinks, over blocks in
    any order."""
    kept = KeptTokens(window, sinks)
    store = KVStore(MODEL, 64, "paged", BLOCK_TOKENS, dtype=torch.float32, device=CPU)
    for stored in store.tensors:
        stored.fill_(torch.nan)
    decodes = attention_backend("auto" if inner == "native" else inner, store, GROUP)
    attention = RollingAttention(decodes, kept, rotary_frequencies(MODEL, CPU))
    queries, keys, values = rows(1, MODEL.heads), rows(2, MODEL.kv_heads), rows(3, MODEL.kv_heads)
    table = RotaryTable(MODEL, torch.float32, CPU).at(torch.arange(TOKENS), TOKENS)
    asked, found = rotate(queries, *table), rotate(keys, *table)
    seq = Sequence("a", 0.0, TOKENS, 1)
    held = -(-kept.total // BLOCK_TOKENS)
    seq.blocks = np.random.default_rng(window).permutation(16)[:held].tolist()
    bounds = sorted({0, *cuts, TOKENS, *range(TOKENS - steps, TOKENS)})
    outputs = []
    for start, stop in pairwise(bounds):
        entry = ScheduledSequence(seq, start, stop - start, True)
        with patch("servetwin.engine.attention.rolling.LEAST_PART_ROWS", part_rows):
            attend = attention.plan([entry], int(stop - start == 1))
        outputs.append(attend(0, asked[start:stop], found[start:stop], values[start:stop]))
    error = torch.cat(outputs).double() - streamed(queries, keys, values, kept)
    assert error.abs().max() < 2e-5


@pytest.mark.parametrize("batching", SCHEDULERS)
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_memory_that_forgets_gives_the_tokens_of_a_window_over_all(
    batching: str, preemption: str
) -> None:
    config = replace(WINDOWED, batching=batching, preemption=preemption, host_kv_tokens=4096)  # type: ignore[arg-type]
    windows = replace(MODEL, windows=(12,) * MODEL.layers)
    requests = random_requests(2, count=10)
    served = serve(config, requests)
    assert served.failures == []
    assert served.tokens == plain_tokens(requests, windows)
    assert served.tokens != plain_tokens(requests), "something must have left the window"
    assert served.replayed(config).identical
    preempted = sum(len(record.preempted) for record in served.log.records)
    assert (preempted > 0) == (batching != "static")
    assert (served.swapped_tokens > 0) == (preemption == "swap" and batching != "static")
    assert served.core.scheduler.memory.free_tokens() == config.kv_tokens


@settings(max_examples=examples(30), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    batching=st.sampled_from(SCHEDULERS),
    window=st.integers(1, 24),
    sinks=st.sampled_from([0, 3]),
    preemption=st.sampled_from(["recompute", "swap"]),
    samples=st.sampled_from([1, 2]),
)
def test_random_loads_over_a_memory_that_forgets(
    seed: int, batching: str, window: int, sinks: int, preemption: str, samples: int
) -> None:
    config = replace(
        WINDOWED,
        kv_groups=f"kept:{window + sinks}",
        batching=batching,
        preemption=preemption,  # type: ignore[arg-type]
        host_kv_tokens=64,
    )
    model = replace(MODEL, sink_tokens=sinks)
    requests = random_requests(seed, count=5, samples=samples)
    served = serve(config, requests, model=model)
    alone = replace(config, kv_tokens=8192, max_seqs=max(1, samples), token_budget=64)
    assert served.failures == []
    assert served.tokens == serve(alone, requests, model=model).tokens
    if samples == 1:
        assert served.replayed(config).identical


def test_more_positions_pass_through_a_sequence_than_its_blocks_hold() -> None:
    params = SamplingParams(40, ignore_eos=True)
    requests = [(0.0, Add("a", list(range(300, 320)), params))]
    config = replace(WINDOWED, kv_tokens=12)
    served = serve(config, requests)
    assert len(served.tokens["a"]) == 40
    assert served.tokens == plain_tokens(requests, replace(MODEL, windows=(12,) * MODEL.layers))
    assert served.runner.store.tokens == 12
