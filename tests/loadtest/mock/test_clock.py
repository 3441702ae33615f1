"""The mock's times: a clock that stands still, and waits that are never short."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servetwin.loadtest.mock.clock import ServerClock, wait_until
from servetwin.loadtest.mock.faults import Freeze

S = 10**9


def clock(*freezes: tuple[float, float]) -> ServerClock:
    made = ServerClock([Freeze(at_s=at_s, for_s=for_s) for at_s, for_s in freezes])
    made.start(0)
    return made


@pytest.mark.parametrize(
    ("arrival_s", "after_s", "due_s"),
    [
        (0.0, 1.0, 1.0),  # all before
        (1.0, 0.9, 1.9),
        (1.0, 1.0, 4.0),  # due as it begins
        (1.0, 1.5, 4.5),  # half of it before, half after
        (2.5, 0.0, 4.0),  # came in it
        (2.5, 0.5, 4.5),
        (3.999, 0.5, 4.5),
        (4.0, 0.5, 4.5),  # all after
        (5.0, 6.0, 12.0),  # over the second one, of 1 s at 10 s
        (1.0, 8.0, 12.0),  # over both
    ],
)
def test_a_freeze_makes_late_what_was_due(arrival_s: float, after_s: float, due_s: float) -> None:
    frozen = clock((10, 1), (2, 2))
    assert frozen.due_ns(round(arrival_s * S), after_s) == pytest.approx(due_s * S)


def test_freezes_that_overlap_are_one() -> None:
    assert clock((2, 2), (3, 2), (3.5, 0.1)).due_ns(S, 2.0) == 6 * S


def test_before_the_first_request_nothing_freezes() -> None:
    idle = ServerClock([Freeze(at_s=0, for_s=5)])
    assert idle.due_ns(7 * S, 1.0) == 8 * S
    idle.start(9 * S)
    idle.start(20 * S)
    assert idle.due_ns(9 * S, 1.0) == 15 * S


freezes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=4)


@given(freezes, st.lists(st.integers(0, 40), min_size=1, max_size=10), st.integers(0, 10))
def test_order_is_kept_and_nothing_is_due_in_a_freeze(
    standing: list[tuple[int, int]], arrivals_s: list[int], after_s: int
) -> None:
    frozen = clock(*standing)
    due_s = [frozen.due_ns(at_s * S, after_s) / S for at_s in sorted(arrivals_s)]
    assert due_s == sorted(due_s)
    for at_s, for_s in standing:
        assert not any(at_s <= due < at_s + for_s for due in due_s)
    for arrival_s, due in zip(sorted(arrivals_s), due_s, strict=True):
        stood = {
            second
            for at_s, for_s in standing
            for second in range(max(at_s, arrival_s), at_s + for_s)
            if second < due
        }
        assert due - arrival_s == after_s + len(stood)


def test_a_wait_is_never_short_and_ends_when_the_client_leaves() -> None:
    async def story() -> list[bool]:
        left = asyncio.get_running_loop().create_future()
        waits = [await wait_until(time.perf_counter_ns() + ms * 10**6, left) for ms in (-1, 0)]
        due_ns = time.perf_counter_ns() + 5_000_000
        waits.append(await wait_until(due_ns, left) and time.perf_counter_ns() >= due_ns)
        asyncio.get_running_loop().call_later(0.005, left.set_result, None)
        return [*waits, await wait_until(due_ns + 10**12, left), await wait_until(0, left)]

    assert asyncio.run(story()) == [True, True, True, False, False]
