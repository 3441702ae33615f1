"""Users in a closed loop."""

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest

from servetwin.workloads.generators.generate import generate_closed_loop
from servetwin.workloads.generators.lengths import FixedTokens
from servetwin.workloads.generators.pauses import ExponentialPause
from servetwin.workloads.statistics.statistics import prefix_statistics
from tests.support.conversation_parts import LENGTHS, LOOP, by_id, sessions_of


def test_each_law_of_a_closed_loop_has_its_own_stream() -> None:
    base = by_id(generate_closed_loop(LOOP, 3))
    slower = by_id(generate_closed_loop(replace(LOOP, think=ExponentialPause(9.0)), 3))
    assert [(r.prompt_tokens, r.output_tokens, r.prefix_block_ids) for r in slower] == [
        (r.prompt_tokens, r.output_tokens, r.prefix_block_ids) for r in base
    ]
    other = replace(LENGTHS, output=FixedTokens(1))
    outputs = by_id(generate_closed_loop(replace(LOOP, lengths=other, prefixes=None), 3))
    assert [(r.arrival_s, r.delay_s, r.prompt_tokens) for r in outputs] == [
        (r.arrival_s, r.delay_s, r.prompt_tokens) for r in base
    ]


def test_users_think_ask_and_think_again() -> None:
    users = sessions_of(generate_closed_loop(LOOP, 0))
    assert {len(requests) for requests in users.values()} == {15}
    assert set(users) == {f"user-{n}" for n in range(1, 21)}
    thinks = [r.delay_s or r.arrival_s for one in users.values() for r in one]
    logs = np.log(thinks)
    assert logs.mean() == pytest.approx(log(10), abs=4 * 1.5 / sqrt(300))
    assert prefix_statistics(users["user-1"]) is not None
