"""Ids of blocks on chains: what a prompt has, whatever it shares; hits as an independent trie."""

import json
import pickle
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.sim.core.cluster import simulate_cluster
from servetwin.sim.core.pools import Pool
from servetwin.sim.step_times.step_time import LinearStepTime
from servetwin.workloads.block_ids import BlockIds, Chains, highest
from servetwin.workloads.errors import TraceError
from servetwin.workloads.generators.arrivals import PoissonArrivals
from servetwin.workloads.generators.conversations import agentic, generate_conversations
from servetwin.workloads.graphs.repeats import Repeats
from servetwin.workloads.readers.native import write_trace
from servetwin.workloads.reading import read_trace
from servetwin.workloads.request import Request
from servetwin.workloads.statistics.statistics import endless_hits
from servetwin.workloads.trace import Trace

NATIVE = st.lists(st.integers(0, 2), max_size=8)


def chained(native: list[int]) -> tuple[int, ...]:
    """Ids that stand for all that comes before them."""
    ids, block = [], 1
    for each in native:
        block = 3 * block + each
        ids.append(block)
    return tuple(ids)


@given(st.lists(NATIVE, max_size=12))
def test_prompts_have_their_ids_on_whatever_chain_they_lie(prompts: list[list[int]]) -> None:
    chains, given_ids = Chains(), [chained(each) for each in prompts]
    made = [chains.of(ids) for ids in given_ids]
    assert made == given_ids
    assert [*map(hash, made)] == [*map(hash, given_ids)]
    assert pickle.loads(pickle.dumps(made)) == given_ids
    assert highest(made) == max((max(ids, default=-1) for ids in given_ids), default=-1)


@given(st.lists(st.lists(st.integers(0, 3), max_size=4).map(tuple), max_size=8))
def test_ids_that_are_not_chained_stay_what_they_are(prompts: list[tuple[int, ...]]) -> None:
    chains = Chains()
    assert [chains.of(ids) for ids in prompts] == prompts


@given(NATIVE, NATIVE, NATIVE, st.integers(0, 9), st.slices(8), st.integers(-9, 8))
def test_ids_behave_as_a_tuple(
    head: list[int], one: list[int], other: list[int], shift: int, part: slice, place: int
) -> None:
    ids, plain = BlockIds.of(head).shifted(shift), tuple(each + shift for each in head)
    longer, parting = ids + one, ids + tuple(other)
    assert list(map(tuple, (ids, longer, parting))) == [plain, (*plain, *one), (*plain, *other)]
    assert longer[part] == (*plain, *one)[part]
    assert [*reversed(longer)] == [*reversed((*plain, *one))]
    assert tuple(one) + ids == (*one, *plain)
    assert (longer == parting) is (one == other)
    assert ids != "no ids"
    assert not isinstance(plain, BlockIds)
    assert bisect_left(ids, True, key=lambda _: True) == 0, "C takes items by their places"
    assert np.array(longer, int).tolist() == [*plain, *one]
    assert repr(ids) == repr(plain)
    if -len(plain) <= place < len(plain):
        assert ids[place] == plain[place]
    else:
        with pytest.raises(IndexError):
            ids[place]


def test_ids_of_more_than_64_bits_stay_a_tuple() -> None:
    assert type(Chains().of([1, 1 << 70])) is tuple


def agents(count: int) -> Trace:
    return generate_conversations(agentic(count, PoissonArrivals(1.0)), 3)


def test_a_turn_costs_what_it_adds_in_memory_and_in_its_file(tmp_path: Path) -> None:
    trace = agents(6)
    distinct = len({block for request in trace for block in request.prefix_block_ids})
    total = sum(len(request.prefix_block_ids) for request in trace)
    chains = {
        id(ids.chain): len(ids.chain)
        for request in trace
        if isinstance(ids := request.prefix_block_ids, BlockIds)
    }
    assert sum(chains.values()) < 2 * distinct < total / 5
    path = tmp_path / "agents.jsonl"
    write_trace(trace, path)
    assert path.stat().st_size < 500 * len(trace) + 12 * distinct
    again = read_trace(path)
    assert again.requests == trace.requests
    read = {id(r.prefix_block_ids.chain) for r in again if isinstance(r.prefix_block_ids, BlockIds)}
    assert len(read) <= len(chains)


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        ({"parent_blocks": 2, "parent_ids": ["a"]}, "'a' before it has 1 ids of blocks (2)"),
        ({"parent_blocks": 1, "parent_ids": ["c"]}, "'c' before it has 0 ids of blocks (1)"),
        ({"parent_blocks": 1}, "'' before it has 0 ids of blocks (1)"),
        ({"parent_blocks": -1}, "parent_blocks"),
    ],
)
def test_blocks_of_a_parent_that_has_fewer_are_refused(
    tmp_path: Path, record: dict[str, Any], wrong: str
) -> None:
    base = {"arrival_s": 0.0, "prompt_tokens": 40, "output_tokens": 2, "block_tokens": 16}
    rows = [
        base | {"request_id": "a", "prefix_block_ids": [7]},
        base | {"request_id": "b"} | record,
        base | {"request_id": "c"},
    ]
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    with pytest.raises(TraceError, match="2: field 'parent_blocks'") as refused:
        read_trace(path)
    assert wrong in str(refused.value)


def hits_of_a_trie(requests: Iterable[Request], *, answers: bool = True) -> list[int]:
    """Tokens of full blocks that those before had filled, by a trie of nested dictionaries."""
    root: dict[int, Any] = {}
    hits = []
    for request in requests:
        node, found, finding = root, 0, True
        for name in request.prefix_block_ids:
            finding = finding and name in node
            found += finding
            node = node.setdefault(name, {})
        for name in request.answer_block_ids if answers else ():
            node = node.setdefault(name, {})
        hits.append(64 * found)
    return hits


def test_the_hits_of_an_endless_cache_are_those_of_a_trie() -> None:
    trace = agents(8)
    repeats = Repeats(trace)
    again = [repeats.again(request, 2) for request in trace]
    assert endless_hits([*trace, *again]) == hits_of_a_trie([*trace, *again])
    assert endless_hits(again) == endless_hits(trace), "a repeat shares nothing with the first"


@pytest.mark.parametrize("index", ["radix", "blocks"])
def test_a_large_cache_finds_what_a_trie_finds(index: Any) -> None:
    requests = [
        replace(
            each, arrival_s=100.0 * place, parent_ids=(), delay_s=None,
            answer_block_ids=each.answer_block_ids[: (each.total_tokens - 1) // 64
                                                   - each.prompt_tokens // 64],
        )
        for place, each in enumerate(agents(8))
    ]  # fmt: skip
    policies = PolicyConfig(
        batching="chunked", prefix_cache=True, prefix_index=index, block_tokens=64,
        kv_tokens=1 << 26, max_model_len=1 << 18, token_budget=1 << 13,
    )  # fmt: skip
    step_time = LinearStepTime((1e-3, *6 * [0.0]), knots=(0,))
    run = simulate_cluster(requests, [Pool(policies, step_time)])
    expected = hits_of_a_trie(requests, answers=index == "blocks")
    at_most = [(each.prompt_tokens - 1) // 64 * 64 for each in requests]
    assert run.requests["cached_tokens"].tolist() == [*map(min, expected, at_most)]
