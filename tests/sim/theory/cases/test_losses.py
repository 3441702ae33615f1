"""Servers without a queue, request by request."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import examples
from tests.support.queue_cases.case import replay, server, trace
from tests.support.queue_cases.judge import cases_named


@settings(max_examples=examples(20))
@given(st.integers(1, 5), st.integers(0, 2**32))
def test_slots_without_a_queue_refuse_whom_they_find_no_room_for(slots: int, seed: int) -> None:
    """Arrivals far from the steps' ends: each is refused exactly when all slots are held."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.integers(1, 8, 100)) - 0.5
    tokens = rng.integers(1, 30, 100)
    config = server(max_seqs=slots, queue_limit=0)
    run = replay(config, {"constant": 1.0}, trace(arrivals_s, outputs=tokens))
    ends_s: list[float] = []
    for arrival_s, service_s, status in zip(
        arrivals_s, tokens, run.requests["status"], strict=True
    ):
        ends_s = [end_s for end_s in ends_s if end_s > np.ceil(arrival_s)]
        assert (status == "finished") == (len(ends_s) < slots)
        if status == "finished":
            ends_s.append(np.ceil(arrival_s) + service_s)


def test_slots_and_memory_for_as_many_refuse_the_same_requests() -> None:
    """Both scenarios draw the same requests, so the very figures agree."""
    by_slots, by_memory = (
        scenario.measure(np.random.default_rng(3))
        for scenario in cases_named(["erlang-slots", "erlang-memory"])
    )
    assert by_slots == by_memory
