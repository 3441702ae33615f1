"""Chained block ids."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.workloads.generators.parents import Chaining


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_chained_ids_are_equal_where_the_whole_prefix_is(prompts: list[list[int]]) -> None:
    chaining = Chaining()
    prefixes: dict[int, tuple[int, ...]] = {}
    for prompt in prompts:
        ids = chaining.chained(prompt)
        assert len(ids) == len(prompt)
        for end, block_id in enumerate(ids, 1):
            assert prefixes.setdefault(block_id, tuple(prompt[:end])) == tuple(prompt[:end])
    assert len(set(prefixes.values())) == len(prefixes)


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_chaining_chained_ids_changes_names_only(prompts: list[list[int]]) -> None:
    once, twice = Chaining(), Chaining()
    names: dict[int, int] = {}
    for prompt in prompts:
        ids = once.chained(prompt)
        for before, after in zip(ids, twice.chained(ids), strict=True):
            assert names.setdefault(before, after) == after
    assert len(set(names.values())) == len(names)
