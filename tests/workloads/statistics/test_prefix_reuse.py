"""LRU hits against a cache that is one; coarser blocks; hot blocks; trees of prefixes."""

from collections import Counter, OrderedDict
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import TRACES
from workloads.errors import TraceError
from workloads.generators.prefixes import PrefixGroups, PrefixStructure, PrefixTree
from workloads.reading import read_trace
from workloads.request import Request
from workloads.statistics.prefix_reuse import lru_hits, reblocked, reuse_shares
from workloads.statistics.statistics import prefix_statistics

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


def shared_trace(name: str) -> list[Request]:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the repository")
    return list(read_trace(path))


def request(ids: tuple[int, ...], prompt_tokens: int, block_tokens: int = 4) -> Request:
    return Request("r", 0.0, prompt_tokens, 1, ids, block_tokens)


def chains(paths: list[list[int]]) -> list[Request]:
    """Requests whose chained ids are the nodes of a trie: equal paths, equal ids."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        request(
            tuple(
                numbers.setdefault(tuple(path[: end + 1]), 7 * len(numbers))
                for end in range(len(path))
            ),
            4 * len(path) - 1,
        )
        for path in paths
    ]


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
def test_lru_hits_of_the_reference_table(name: str) -> None:
    found = lru_hits(shared_trace(name), SHARES)
    assert [f"{b:.4f} / {t:.4f}" for b, t in found] == pairs(LRU_TABLE[name])


@pytest.mark.parametrize("name", COARSER_TABLE)
def test_coarser_blocks_of_the_reference_table(name: str) -> None:
    requests = shared_trace(name)
    found = [prefix_statistics(reblocked(requests, factor)) or {} for factor in (2, 4, 8)]
    printed = [f"{f['hit_per_block']:.4f} / {f['hit_per_token']:.4f}" for f in found]
    assert printed == pairs(COARSER_TABLE[name])


@pytest.mark.parametrize("name", REUSE_TABLE)
def test_reuse_of_the_reference_table(name: str) -> None:
    reused, top = reuse_shares(shared_trace(name))
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


def ideal_token_hits(structure: PrefixStructure, prompts: np.ndarray, seed: int = 0) -> float:
    ids = structure.block_ids(prompts, np.random.default_rng(seed))
    figures = prefix_statistics([
        Request("r", 0.0, prompt, 1, chain, structure.block_tokens)
        for prompt, chain in zip(prompts.tolist(), ids, strict=True)
    ])  # fmt: skip
    assert figures is not None
    return float(figures["hit_per_token"])


@pytest.mark.parametrize(
    ("groups", "prefix_tokens", "question", "zipf"),
    [(64, 2048, 128, 1.0), (64, 2050, 128, 0.0), (7, 33, 5, 0.0), (1, 16, 1, 1.0)],
)
def test_shared_prefixes_hit_by_their_closed_form(
    groups: int, prefix_tokens: int, question: int, zipf: float
) -> None:
    """(n - G) P / (n (P + Q)), P in whole blocks, where n requests have seen all G groups."""
    requests = 2000
    structure = PrefixGroups(groups, prefix_tokens, zipf)
    whole = prefix_tokens // 16 * 16
    expected = (requests - groups) * whole / (requests * (prefix_tokens + question))
    found = ideal_token_hits(structure, np.full(requests, prefix_tokens + question))
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_full_tree_hits_by_its_closed_form() -> None:
    """Every prompt reaches a leaf; the first to meet a node misses it: (n d - nodes) / n d."""
    tree = PrefixTree(branching=3, levels=3, node_tokens=64, descend=1.0, zipf=0.0)
    requests, nodes = 2000, 3 + 9 + 27
    found = ideal_token_hits(tree, np.full(requests, 200))
    assert found == pytest.approx((requests * 3 - nodes) * 64 / (requests * 200), rel=1e-12)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.floats(0, 1), st.integers(0, 99))
def test_prompts_of_a_tree(
    branching: int, levels: int, node_blocks: int, descend: float, seed: int
) -> None:
    tree = PrefixTree(branching, levels, 8 * node_blocks, descend, 1.0, 8)
    prompts = np.random.default_rng(seed).integers(1, 200, 40)
    chains = tree.block_ids(prompts, np.random.default_rng(seed))
    first_unique = sum(branching**level for level in range(1, levels + 1)) * node_blocks
    before: dict[int, tuple[int, ...]] = {}
    unique: list[int] = []
    for prompt, ids in zip(prompts.tolist(), chains, strict=True):
        shared = [i for i in ids if i < first_unique]
        assert len(ids) == -(-prompt // 8)
        assert len(shared) % node_blocks == 0
        assert len(shared) <= levels * node_blocks
        assert len(shared) * 8 < prompt  # a token of its own remains
        assert list(ids[: len(shared)]) == shared
        for end, block_id in enumerate(ids):
            assert before.setdefault(block_id, ids[:end]) == ids[:end]  # chained
        unique += ids[len(shared) :]
    assert len(unique) == len(set(unique))


def test_children_of_a_tree_follow_zipf_and_depth_its_chance() -> None:
    tree = PrefixTree(branching=3, levels=5, node_tokens=16, descend=0.7, zipf=1.0)
    prompts = np.full(20_000, 1000)
    chains = tree.block_ids(prompts, np.random.default_rng(0))
    first_unique = sum(3**level for level in range(1, 6))
    deep = Counter(sum(i < first_unique for i in ids) for ids in chains)
    for depth in range(6):
        share = 0.7**5 if depth == 5 else 0.7**depth * 0.3
        assert deep[depth] == pytest.approx(20_000 * share, abs=4 * sqrt(20_000 * share))
    roots = Counter(ids[0] for ids in chains if ids[0] < 3)
    descended = sum(roots.values())
    for child in range(3):
        share = 6 / 11 / (child + 1)
        assert roots[child] == pytest.approx(descended * share, abs=4 * sqrt(descended * share))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branching": 0}, "branching, levels, node and block tokens want 1 or more"),
        ({"node_tokens": 100}, "a node of 100 tokens is no multiple of blocks of 16"),
        ({"descend": 1.5}, "the chance to descend must be 0 to 1, not 1.5"),
        ({"branching": 1000, "levels": 5}, "a tree has at most 1,099,511,627,776 nodes, not"),
        ({"zipf": -1.0}, "the Zipf exponent must be 0 or positive, not -1"),
    ],
)
def test_impossible_trees(options: dict[str, float], message: str) -> None:
    with pytest.raises(TraceError) as raised:
        PrefixTree(**options)  # type: ignore[arg-type]
    assert message in str(raised.value)
