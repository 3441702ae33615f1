"""Closed forms refuse systems that they do not describe."""

from collections.abc import Callable
from math import inf, nan

import pytest

from servetwin.workloads.errors import ServetwinError
from tests.support.theory.batches import (
    batch_service,
    bounded_batch_service,
    geometric_slot_efficiency,
    mean_longest,
    sampled_slot_efficiency,
)
from tests.support.theory.queues import (
    PriorityClass,
    TheoryError,
    closed_loop,
    erlang_b,
    erlang_c,
    kaufman_roberts,
    littles_law_gap,
    md1_wait_s,
    mg1_wait_s,
    mm1_sojourn_quantile_s,
    mm1_sojourn_s,
    number_integral_s,
    priority_waits_s,
    sjf_waits_s,
)
from tests.support.theory.serving import copy_on_write, region_use, sampled_region_use


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda: md1_wait_s(1.0, 1.0), "utilisation of 1 has no steady state"),
        (lambda: md1_wait_s(-1.0, 1.0), "rate_per_s must be 0 or a positive"),
        (lambda: mg1_wait_s(0.5, 1.0, nan), "service_cv must be 0 or a positive"),
        (lambda: mm1_sojourn_s(0.5, inf), "service_s must be a positive number, not inf"),
        (lambda: mm1_sojourn_quantile_s(1.0, 0.5, 1.0), "at least 0 and below 1"),
        (lambda: erlang_c(4, 4.0), "utilisation of 1 has no steady state"),
        (lambda: erlang_b(0, 4.0), "servers must be a whole number of at least 1"),
        (lambda: geometric_slot_efficiency(4, inf), "mean_tokens must be at least 1"),
        (lambda: kaufman_roberts(8, [1], [1.0, 2.0]), "1 sizes and 2 loads do not pair"),
        (lambda: batch_service(10, 0.1, 0.0), "no steady state"),
        (lambda: batch_service(1 - 1e-9, 1.0, 0.0), "too close to 1"),
        (lambda: batch_service(10, 0.0, 0.0), "service_of_one_s must be a positive"),
        (lambda: bounded_batch_service(10, 0.02, 0.1, 1), "no steady state"),
        (lambda: bounded_batch_service(9, 0.1, 0.1, 10**5), "or the batch too large"),
        (lambda: priority_waits_s([PriorityClass(1, 0.6), PriorityClass(1, 0.6)]), "1.2"),
        (lambda: priority_waits_s([]), "at least one class"),
        (lambda: sjf_waits_s(0.1, [1, 2], [0.5, 0.4]), "adding up to 1"),
        (lambda: geometric_slot_efficiency(4, 0.5), "mean_tokens must be at least 1"),
        (lambda: sampled_slot_efficiency([], 4), "no lengths to draw from"),
        (lambda: mean_longest([3, 0], 4), "shortest_length must be a positive"),
        (lambda: closed_loop(3, 1.0, []), "at least one station"),
        (lambda: number_integral_s([1.0], [0.5]), "one time of entering and a later one"),
        (lambda: littles_law_gap([1.0], [1.0]), "no request stayed"),
        (lambda: region_use(100, 50, 1.0, 150), "cannot hold requests of 200"),
        (lambda: sampled_region_use([9], [9], "pow2", 16), "18 tokens exceeds max_model"),
        (lambda: sampled_region_use([9], [9, 9], "max", 64), "as many prompts as outputs"),
        (lambda: copy_on_write(100, 0, 4, 16), "output_tokens must be a whole number"),
    ],
)
def test_what_has_no_answer_is_refused(ask: Callable[[], object], complaint: str) -> None:
    with pytest.raises(TheoryError, match=complaint) as refusal:
        ask()
    assert isinstance(refusal.value, ServetwinError)
