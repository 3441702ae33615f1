"""One slot that picks whom to serve next: in order of arrival, the shortest, the most urgent."""

import numpy as np

from policies.config import QueueOrder
from sim.theory import PriorityClass, mg1_wait_s, priority_waits_s, sjf_waits_s
from sim.theory.selftest.scenario import HEAVY_TAIL, Figures, Scenario
from sim.theory.selftest.server import (
    ROW_COST,
    ROWS,
    poisson_arrivals_s,
    replay,
    server,
    settled,
    trace,
)

REQUESTS = 10_000
UTILISATION = 0.7
SIZES_S = np.array([1, 9])
SHARES = np.array([0.9, 0.1])
MEAN_S = float(SHARES @ SIZES_S)
CV = float(np.sqrt(SHARES @ SIZES_S**2 - MEAN_S**2)) / MEAN_S
RATE_PER_S = UTILISATION / MEAN_S


def _ordered(order: QueueOrder, exact: Figures) -> Scenario:
    """The long ones have the higher priority, which the other orders ignore."""
    config = server(max_seqs=1, queue_order=order)

    def measure(rng: np.random.Generator) -> Figures:
        arrivals, lengths = rng.spawn(2)
        is_long = lengths.random(REQUESTS) < SHARES[1]
        rows = SIZES_S[is_long.astype(np.int64)] * ROWS
        arrivals_s = poisson_arrivals_s(arrivals, RATE_PER_S, REQUESTS)
        run = replay(config, ROW_COST, trace(arrivals_s, rows, priorities=is_long))
        waits_s = settled(run, "queue_s")
        is_long = is_long[-len(waits_s) :]
        return {
            "mean wait": float(waits_s.mean()),
            "short: mean wait": float(waits_s[~is_long].mean()),
            "long: mean wait": float(waits_s[is_long].mean()),
        }

    setting = f"one slot, services of 1 s (90 %) and 9 s, 70 % loaded, order {order}"
    return Scenario(order, setting, exact, measure, replications=32, precision=HEAVY_TAIL)


_SJF_S = sjf_waits_s(RATE_PER_S, SIZES_S.tolist(), SHARES.tolist())
_LONG_S, _SHORT_S = priority_waits_s(
    [
        PriorityClass(RATE_PER_S * float(SHARES[1]), float(SIZES_S[1])),
        PriorityClass(RATE_PER_S * float(SHARES[0]), float(SIZES_S[0])),
    ]
)

ORDERS = (
    _ordered("fcfs", {"mean wait": mg1_wait_s(RATE_PER_S, MEAN_S, CV)}),
    _ordered("sjf", {"mean wait": float(SHARES @ _SJF_S), "short: mean wait": float(_SJF_S[0])}),
    _ordered("priority", {"long: mean wait": float(_LONG_S), "short: mean wait": float(_SHORT_S)}),
)
