"""LRU hits against a cache that is one; coarser blocks; hot blocks; trees of prefixes."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.request import Request
from servetwin.workloads.statistics.prefix_reuse import (
    lru_hits,
    reblocked,
    reuse_shares,
    why_no_hits,
)
from servetwin.workloads.statistics.statistics import prefix_statistics
from tests.support.effort import only_in_ci
from tests.support.prefix_chains import chains, request
from tests.support.trace_rows import shared_trace

CONVERSATION = "mooncake/conversation_trace.jsonl.gz"
ARXIV = "mooncake/arxiv_trace_window_93.jsonl"
AGENTS = "agentic_weka"
SHARES = (0.01, 0.05, 0.10, 0.25, 0.50)
LRU_TABLE = {
    ARXIV: (
        "0.1373 / 0.1424 | 0.2712 / 0.2812 | 0.3216 / 0.3334 | 0.3533 / 0.3663 | 0.3533 / 0.3663"
    ),
    CONVERSATION: (
        "0.0525 / 0.0535 | 0.1958 / 0.1996 | 0.2789 / 0.2844 | 0.3535 / 0.3604 | 0.3631 / 0.3703"
    ),
}
COARSER_TABLE = {
    ARXIV: "0.3020 / 0.3263 | 0.2829 / 0.3263 | 0.1581 / 0.1946",
    CONVERSATION: "0.3274 / 0.3401 | 0.2977 / 0.3219 | 0.2483 / 0.2927",
    AGENTS: "0.9629 / 0.9629 | 0.9619 / 0.9624 | 0.9600 / 0.9614",
}
REUSE_TABLE = {ARXIV: "0.0192 / 0.6172", CONVERSATION: "0.2415 / 0.3165"}


def naive_lru_hits(requests: list[Request], capacity: int) -> int:
    """A cache of ``capacity`` blocks that is played through, evicting one block at a time."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for one in requests:
        leading = 0
        for block_id in one.prefix_block_ids:
            if block_id not in cache:
                break
            leading += 1
        hits += leading
        for block_id in reversed(one.prefix_block_ids):
            cache[block_id] = None
            cache.move_to_end(block_id)
        while len(cache) > capacity:
            cache.popitem(last=False)
    return hits


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=30),
    st.floats(0, 1),
)
def test_lru_hits_are_those_of_a_cache_played_through(paths: list[list[int]], share: float) -> None:
    requests = chains(paths)
    distinct = len({i for one in requests for i in one.prefix_block_ids})
    blocks = sum(len(one.prefix_block_ids) for one in requests)
    [(by_block, _)] = lru_hits(requests, [share])
    assert by_block * blocks == pytest.approx(naive_lru_hits(requests, int(share * distinct)))


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=30))
def test_a_cache_of_all_blocks_hits_as_an_unlimited_one(paths: list[list[int]]) -> None:
    requests = chains(paths)
    ideal = prefix_statistics(requests)
    assert ideal is not None
    assert lru_hits(requests, [1.0]) == [(ideal["hit_per_block"], ideal["hit_per_token"])]
    rates = [by_block for by_block, _ in lru_hits(requests, [0, 0.2, 0.4, 0.6, 0.8, 1])]
    assert rates == sorted(rates)
    assert rates[0] == 0


def pairs(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("|")]


@pytest.mark.parametrize("name", LRU_TABLE)
@pytest.mark.slow
def test_lru_hits_of_the_reference_table(name: str) -> None:
    found = lru_hits(shared_trace(name).requests, SHARES)
    assert [f"{b:.4f} / {t:.4f}" for b, t in found] == pairs(LRU_TABLE[name])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=only_in_ci if name == AGENTS else ()) for name in COARSER_TABLE],
)
@pytest.mark.slow
def test_coarser_blocks_of_the_reference_table(name: str) -> None:
    requests = shared_trace(name).requests
    found = [prefix_statistics(reblocked(requests, factor)) or {} for factor in (2, 4, 8)]
    printed = [f"{f['hit_per_block']:.4f} / {f['hit_per_token']:.4f}" for f in found]
    assert printed == pairs(COARSER_TABLE[name])


@pytest.mark.parametrize("name", REUSE_TABLE)
@pytest.mark.slow
def test_reuse_of_the_reference_table(name: str) -> None:
    reused, top = reuse_shares(shared_trace(name).requests)
    assert f"{reused:.4f} / {top:.4f}" == REUSE_TABLE[name]


@pytest.mark.parametrize(
    ("ids", "prompt_tokens", "factor", "coarse"),
    [
        ((1, 2, 3, 4), 16, 2, (2, 4)),
        ((1, 2, 3, 4), 14, 2, (2, 4)),
        ((1, 2, 3), 12, 2, (2, 3)),
        ((1, 2, 3), 15, 2, (2, 3)),
        ((1,), 3, 8, (1,)),
        ((), 3, 2, ()),
    ],
)
def test_reblocking(
    ids: tuple[int, ...], prompt_tokens: int, factor: int, coarse: tuple[int, ...]
) -> None:
    [found] = reblocked([request(ids, prompt_tokens)], factor)
    assert (found.prefix_block_ids, found.block_tokens) == (coarse, 4 * factor)


def test_a_request_without_ids_has_nothing_to_reblock() -> None:
    plain = Request("r", 0.0, 5, 1)
    assert reblocked([plain], 2) == [plain]


def test_reuse_by_hand() -> None:
    assert reuse_shares([request((1, 2), 8), request((1, 3), 8), request((1,), 4)]) == (1 / 3, 1.0)
    assert reuse_shares([request((1, 2), 8)]) == (0.0, None)


def asked(prompt: tuple[int, ...], answer: tuple[int, ...] = ()) -> Request:
    return Request(
        "r", 0.0, 16, 16, prefix_block_ids=prompt, answer_block_ids=answer, block_tokens=16
    )


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ([], "no request has prefix ids"),
        ([asked(()), asked(())], "no request has prefix ids"),
        ([asked((1, 2)), asked((3,)), asked(())], "no two prompts begin alike"),
        ([asked((1,)), asked((2,)), asked((1, 4))], None),
        ([asked((1,), (2,)), asked((3,)), asked((2,))], None),
        ([asked((3,)), asked((1,), (3,))], "no two prompts begin alike"),
    ],
)
def test_why_a_prefix_cache_cannot_hit(requests: list[Request], why: str | None) -> None:
    assert why_no_hits(requests) == why
