"""Messages between devices: the alpha-beta model."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.sim.catalogue.hardware import Link


# Messages
def test_a_small_sum_over_eight_devices_is_all_latency() -> None:
    nvlink = Link(5e-6, 200e9)
    ring_s = nvlink.all_reduce_s(16 * 1024, 8, "ring")
    assert f"{ring_s * 1e6:.2f}" == "70.14"
    assert f"{160 * ring_s * 1e3:.2f}" == "11.22"
    tree_s = nvlink.all_reduce_s(16 * 1024, 8, "tree")
    assert nvlink.all_reduce_s(16 * 1024, 8) == tree_s < ring_s


@given(st.sampled_from([4, 8, 16, 64]), st.floats(1e-7, 1e-3), st.floats(1e8, 1e12))
def test_ring_and_tree_take_as_long_at_the_size_where_they_cross(
    ranks: int, latency_s: float, bytes_per_s: float
) -> None:
    link = Link(latency_s, bytes_per_s)
    more_messages = 2 * (ranks - 1) - log2(ranks)
    fewer_bytes = log2(ranks) - 2 * (ranks - 1) / ranks
    crossing = latency_s * bytes_per_s * more_messages / fewer_bytes
    ring_s, tree_s = (link.all_reduce_s(crossing, ranks, a) for a in ("ring", "tree"))
    assert ring_s == pytest.approx(tree_s)
    for size in (crossing / 2, crossing * 2):
        both = [link.all_reduce_s(size, ranks, a) for a in ("ring", "tree")]
        assert link.all_reduce_s(size, ranks) == min(both) == both[size < crossing]


def test_two_devices_exchange_once_whatever_the_algorithm_but_for_a_second_latency() -> None:
    link = Link(0.0, 1e9)
    assert link.all_reduce_s(1e6, 2, "ring") == link.all_reduce_s(1e6, 2, "tree") == 1e-3


@given(
    st.floats(0, 1e-3),
    st.floats(1e8, 1e12),
    st.integers(1, 64),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
def test_messages_never_get_quicker_by_being_larger(
    latency_s: float, bytes_per_s: float, ranks: int, size: float, more: float
) -> None:
    link = Link(latency_s, bytes_per_s)
    for time_s in (
        lambda size: link.all_reduce_s(size, ranks, "ring"),
        lambda size: link.all_reduce_s(size, ranks, "tree"),
        lambda size: link.all_reduce_s(size, ranks),
        lambda size: link.all_to_all_s(size, ranks),
        link.send_s,
    ):
        assert 0 <= time_s(size) <= time_s(size + more)


def test_one_device_sends_nothing() -> None:
    link = Link(1.0, 1.0)
    assert link.all_reduce_s(1e9, 1) == link.all_to_all_s(1e9, 1) == 0
