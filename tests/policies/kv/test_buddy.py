"""The buddy allocator: halves, buddies, the lowest address first."""

import pytest

from servetwin.policies.kv.contiguous import BuddyAllocator, power_of_two


@pytest.mark.parametrize(
    ("tokens", "power"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1024, 1024), (1025, 2048)]
)
def test_the_least_power_of_two(tokens: int, power: int) -> None:
    assert power_of_two(tokens) == power


def test_a_capacity_is_a_sum_of_powers_of_two() -> None:
    regions = BuddyAllocator(13)
    assert sorted(regions.pieces()) == [(0, 8), (8, 4), (12, 1)]
    assert (regions.largest, regions.free_slots, regions.largest_free()) == (8, 13, 8)


def test_regions_are_split_from_the_smallest_that_fits_at_the_lowest_address() -> None:
    regions = BuddyAllocator(13)
    assert regions.allocate(4) == 8
    assert regions.allocate(2) == 0
    assert sorted(regions.pieces()) == [(2, 2), (4, 4), (12, 1)]
    assert regions.allocate(1) == 12
    assert regions.allocate(1) == 2
    assert (regions.free_slots, regions.largest_free()) == (5, 4)
    assert regions.allocate(8) is None
    assert regions.allocate(16) is None
    assert regions.free_slots == 5


def test_buddies_are_joined_again() -> None:
    regions = BuddyAllocator(8)
    starts = [regions.allocate(2) for _ in range(4)]
    assert starts == [0, 2, 4, 6]
    assert regions.largest_free() == 0
    regions.release(4, 2)
    regions.release(2, 2)
    assert sorted(regions.pieces()) == [(2, 2), (4, 2)]
    regions.release(6, 2)
    assert sorted(regions.pieces()) == [(2, 2), (4, 4)]
    regions.release(0, 2)
    assert regions.pieces() == [(0, 8)]
    assert regions.free_slots == 8


def test_the_lowest_of_several_free_regions_is_taken() -> None:
    regions = BuddyAllocator(16)
    assert [regions.allocate(4) for _ in range(4)] == [0, 4, 8, 12]
    regions.release(8, 4)
    regions.release(0, 4)
    assert regions.allocate(2) == 0
    assert regions.allocate(4) == 8
