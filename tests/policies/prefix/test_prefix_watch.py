"""A watched match changes only where a cause of it happened."""

from hypothesis import given
from hypothesis import strategies as st

from servetwin.policies.config import PolicyConfig
from servetwin.policies.kv.paged import PagedKV
from servetwin.policies.prefix.prefix_tree import PrefixWatch
from servetwin.policies.sequence import Sequence
from tests.support.scheduler_steps import sequence


def prompt(name: str, family: int, shared: int, tokens: int, key_blocks: int) -> Sequence:
    keys = [
        1000 * key_blocks + 100 * family + j if j < shared else 10_000 * (1 + int(name)) + j
        for j in range(-(-tokens // (4 * key_blocks)))
    ]
    return Sequence(name, 0.0, tokens, 9, keys, key_blocks=key_blocks)


prompts = st.tuples(
    st.integers(0, 1), st.integers(0, 8), st.integers(1, 32), st.sampled_from([1, 1, 2])
)


@given(watched=st.lists(prompts, min_size=1, max_size=8), data=st.data())
def test_no_change_of_a_match_is_missed(
    watched: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    memory = PagedKV(PolicyConfig(kv_tokens=80, block_tokens=4, prefix_cache=True))
    tree = memory.prefix_tree()
    assert tree is not None
    watch = tree.watch()
    found: dict[Sequence, int] = {}
    for number, one in enumerate(watched):
        seq = prompt(str(number), *one)
        found[seq], causes = tree.match(seq, (seq.prompt_tokens - 1) // 4)
        watch.begin(seq, causes)
    held: list[Sequence] = []
    for number in range(100, 100 + data.draw(st.integers(1, 12))):
        seq = prompt(str(number), *data.draw(prompts))
        if memory.reserve(seq, seq.prompt_tokens):
            held.append(seq)
            middle = data.draw(st.integers(1, seq.prompt_tokens))
            memory.commit(seq, middle)
            memory.commit(seq, seq.prompt_tokens)
        releases: bool = data.draw(st.booleans())
        if held and releases:
            memory.release(held.pop(data.draw(st.integers(0, len(held) - 1))))
        for changed in watch.take_changed():
            found[changed], causes = tree.match(changed, (changed.prompt_tokens - 1) // 4)
            watch.begin(changed, causes)
        assert all(memory.cached_prefix(seq) == 4 * blocks for seq, blocks in found.items())


def test_what_is_watched_no_more_is_forgotten() -> None:
    watch = PrefixWatch()
    first, second = sequence("a"), sequence("b")
    watch.begin(first, [1, 2])
    watch.begin(second, [2])
    watch.end(first)
    watch.happened(1)
    watch.happened(2)
    watch.happened(2)
    assert watch.take_changed() == [second]
    assert watch.take_changed() == []
    watch.begin(second, [3])
    watch.happened(3)
    watch.end(second)
    assert watch.take_changed() == []
