"""Prompts with chained prefix ids."""

from collections.abc import Sequence
from itertools import takewhile

from hypothesis import strategies as st

from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace


@st.composite
def chained_traces(draw: st.DrawFn) -> Trace:
    """Prompts are paths in a tree; a node's id stands for the whole path to it."""
    block_tokens = draw(st.integers(1, 40))
    full_blocks_only = draw(st.booleans())
    paths = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), max_size=6))
    nodes: dict[tuple[int, ...], int] = {}
    requests = []
    for row, path in enumerate(paths):
        prompt_tokens = (len(path) - 1) * block_tokens + draw(st.integers(1, block_tokens))
        count = prompt_tokens // block_tokens if full_blocks_only else len(path)
        prefixes = [tuple(path[: end + 1]) for end in range(count)]
        ids = tuple(nodes.setdefault(prefix, len(nodes)) for prefix in prefixes)
        requests.append(Request(f"r{row}", 0.0, prompt_tokens, 1, ids, block_tokens))
    return Trace(tuple(requests), "tree")


def leading(left: Sequence[object], right: Sequence[object]) -> int:
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def shared_ids(left: Request, right: Request) -> int:
    return leading(left.prefix_block_ids, right.prefix_block_ids)


def shared_tokens(left: Request, right: Request) -> int:
    known = shared_ids(left, right) * (left.block_tokens or 0)
    return min(known, left.prompt_tokens, right.prompt_tokens)


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
