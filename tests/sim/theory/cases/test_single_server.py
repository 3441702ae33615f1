"""One slot, request by request."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import REDUCTION, WIDENING, examples
from tests.support.queue_cases.case import (
    ONE_SLOT,
    ROW_COST,
    SelftestCase,
    poisson_arrivals_s,
    replay,
    trace,
)
from tests.support.queue_cases.judge import judge
from tests.support.theory.queues import md1_wait_s

pytestmark = pytest.mark.slow


def test_a_busier_slot_waits_as_pollaczek_and_khinchine_say() -> None:
    """M/D/1 at 80 %, a service of 10 tokens is a second; the interval is within 12 % in CI."""
    utilisation, count = 0.8, 4000 // REDUCTION

    def mean_wait_s(rng: np.random.Generator) -> dict[str, float]:
        arrivals_s = poisson_arrivals_s(rng, utilisation, count)
        requests = trace(arrivals_s, outputs=10)
        run = replay(ONE_SLOT, {"constant": 0.1}, requests)
        return {"mean wait": float(run.requests["queue_s"][count // 8 :].mean())}

    busy = SelftestCase(
        "busy", "", {"mean wait": md1_wait_s(0.8, 1.0)}, mean_wait_s, 36, precision=0.12 * WIDENING
    )
    assert all(outcome.holds for outcome in judge(busy))


@settings(max_examples=examples(20))
@given(st.floats(0.05, 3), st.integers(0, 2**32))
def test_waits_of_one_slot_are_lindleys_request_by_request(load: float, seed: int) -> None:
    """The wait of the next: max(0, wait + service - gap) (Lindley 1952)."""
    rng = np.random.default_rng(seed)
    arrivals_s = poisson_arrivals_s(rng, load, 200)
    rows = rng.integers(1, 2_000_000, 200)
    run = replay(ONE_SLOT, ROW_COST, trace(arrivals_s, rows))
    expected_s = [0.0]
    for service_s, gap_s in zip(rows[:-1] / 1e6, np.diff(arrivals_s), strict=True):
        expected_s.append(max(0.0, expected_s[-1] + service_s - gap_s))
    assert run.requests["queue_s"].to_numpy() == pytest.approx(np.array(expected_s), abs=1e-6)
