"""The host tier: whole keys, the least recently used first out."""

from servetwin.policies.kv.host_tier import HostTier, KeptPart
from servetwin.policies.sequence import Sequence


def prompt(*keys: int, key_blocks: int = 1) -> Sequence:
    return Sequence("s", 0.0, 1000, 1, keys, key_blocks=key_blocks)


def test_it_finds_what_was_kept_from_a_place_on_up_to_the_limit() -> None:
    host = HostTier(8)
    host.keep(prompt(1, 2, 3), 2)
    assert host.find(prompt(1, 2, 3), 0, 3) == 2
    assert host.find(prompt(1, 2, 3), 1, 3) == 1
    assert host.find(prompt(1, 2, 3), 0, 1) == 1
    assert host.find(prompt(1, 2, 3), 2, 3) == 0
    assert host.find(prompt(9, 2), 0, 2) == 0
    assert host.find(prompt(1), 0, 5) == 1


def test_keys_of_several_blocks_are_kept_whole() -> None:
    host = HostTier(8)
    host.keep(prompt(1, 2, key_blocks=3), 5)
    assert host.find(prompt(1, 2, key_blocks=3), 0, 6) == 3
    assert host.find(prompt(1, 2, key_blocks=3), 1, 6) == 2
    assert host.find(prompt(1, 2, key_blocks=3), 1, 2) == 1
    host.keep(prompt(1, 2, key_blocks=3), 6)
    assert host.find(prompt(1, 2, key_blocks=3), 0, 6) == 6
    assert host.find(prompt(1, 2, key_blocks=3), 4, 6) == 2


def test_the_least_recently_used_goes_first_and_use_counts_as_recent() -> None:
    host = HostTier(3)
    for key in (1, 2, 3):
        host.keep(prompt(key), 1)
    host.keep(prompt(1), 1)
    host.keep(prompt(4), 1)
    assert [host.find(prompt(key), 0, 1) for key in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_it_holds_exactly_its_capacity() -> None:
    host = HostTier(4)
    host.keep(prompt(1, 2, key_blocks=2), 4)
    assert host.find(prompt(1, 2, key_blocks=2), 0, 4) == 4
    host.keep(prompt(8), 1)
    assert host.find(prompt(1, 2, key_blocks=2), 0, 4) == 0
    assert host.find(prompt(1, 2, key_blocks=2), 2, 4) == 2
    assert host.find(prompt(8), 0, 1) == 1


def test_what_a_step_computes_is_found_when_the_step_has_ended() -> None:
    host, writer = HostTier(8, block_tokens=4), prompt(1, 2, 3)
    writer.base_computed_tokens = 4
    host.keep(writer, 3, computed_blocks=1)
    assert host.find(prompt(1, 2, 3), 0, 3) == 1
    writer.base_computed_tokens = 8
    assert host.find(prompt(1, 2, 3), 0, 3) == 2
    writer.base_computed_tokens = 12
    assert host.find(prompt(1, 2, 3), 0, 3) == 3
    writer.base_computed_tokens = 0
    assert host.find(prompt(1, 2, 3), 0, 3) == 3, "what has been computed stays"


def test_what_its_sequence_never_computed_is_forgotten_with_its_memory() -> None:
    host, writer = HostTier(8, block_tokens=4), prompt(1, 2, 3)
    host.keep(writer, 3, computed_blocks=0)
    writer.base_computed_tokens = 8
    host.settle(writer)
    writer.base_computed_tokens = 0
    assert host.find(prompt(1, 2, 3), 0, 3) == 2
    host.forget()
    assert host.find(prompt(1, 2, 3), 0, 3) == 0


def test_a_watcher_learns_what_is_kept_loaded_and_dropped() -> None:
    host, writer, reader = HostTier(2, block_tokens=4), prompt(1, 2), prompt(1, 2)
    host.keep(prompt(9), 1)
    moves = host.watch()
    assert host.watch() is moves
    host.keep(writer, 2, computed_blocks=1)
    assert moves.computed == {(1, 0): KeptPart(writer, writer.blocks)}
    assert moves.coming == {(2, 1): KeptPart(writer, writer.blocks)}
    assert list(moves.dropped) == [(9, 0)]
    assert host.load(reader, 0, 2) == 4
    assert moves.loads == {reader: (0, 1)}
    host.keep(prompt(7, 8), 2)
    assert list(moves.dropped) == [(9, 0), (1, 0), (2, 1)]
    assert moves.coming == {}
    assert (1, 0) in moves.computed, "it may be loaded by the decision that drops it"
    assert host.load(reader, 0, 2) == 0
    assert moves.loads == {reader: (0, 0)}


def test_a_part_that_is_dropped_and_kept_again_is_not_dropped() -> None:
    host = HostTier(1)
    moves = host.watch()
    for key in (1, 2, 1):
        host.keep(prompt(key), 1)
    assert list(moves.dropped) == [(2, 0)]
    assert (1, 0) in moves.computed
