"""The share of a level's requests that keep the SLO, with its confidence interval.

Neighbouring requests share a queue, so n requests say less than n independent ones would. How much
less is the design effect, from the means of consecutive batches (20 of them: Schmeiser, "Batch size
effects in the analysis of simulation output", 1982). It is measured on the ranks of how near each
request came to its limits, since a level may have no miss at all while its requests still hang
together. The interval is the exact one of a binomial share (Clopper and Pearson, 1934) for the
effective number of requests, with the degrees of freedom of the batches (Korn and Graubard,
"Confidence intervals for proportions with small expected number of positive counts estimated from
survey data", 1998).
"""

from dataclasses import dataclass
from math import isnan

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.sim.records.metrics import SLO, Floats, margins, measured
from servetwin.workloads.request import CANCELLED_BY_TEST

# Of the interval of one level: each end is passed with a chance of 2.5 %.
CONFIDENCE = 0.95
BATCHES = 20
# With fewer requests in a batch there are fewer batches.
LEAST_BATCH = 5


@dataclass(frozen=True, slots=True)
class Attainment:
    """The share of ``requests`` that kept the SLO, and the interval at ``CONFIDENCE``.

    ``effective`` independent requests would say as much.
    """

    share: float
    low: float
    high: float
    requests: int
    effective: float


def attainment(requests: pd.DataFrame, slo: SLO) -> Attainment:
    """Return the attainment of a run's requests (``REQUEST_COLUMNS``), without warm-up.

    A request that did not finish keeps no limit; one that the test itself cancelled does not count.
    """
    rows = measured(requests)
    if "error" in rows:
        rows = rows[rows["error"] != CANCELLED_BY_TEST]
    rows = rows.sort_values("scheduled_s", kind="stable")
    return attainment_of(margins(rows, slo))


def attainment_of(margins: npt.ArrayLike) -> Attainment:
    """Return the attainment of requests with these margins, in the order of their arrival."""
    series = np.asarray(margins, dtype=float)
    count = len(series)
    if not count:
        return Attainment(0.0, 0.0, 1.0, 0, 0.0)
    share = float((series <= 1.0).mean())
    effective = effective_requests(series)
    low, high = binomial_interval(share, effective)
    return Attainment(share, low, high, count, effective)


def effective_requests(series: Floats) -> float:
    """Return the number of independent requests that would say as much as these."""
    from scipy.special import stdtrit

    count = len(series)
    batches = min(BATCHES, count // LEAST_BATCH)
    if batches < 2:
        return float(count)
    size = count // batches
    used = pd.Series(series[count - batches * size :]).rank().to_numpy(float)
    of_requests = used.var(ddof=1)
    of_means = used.reshape(batches, size).mean(axis=1).var(ddof=1)
    effect = max(1.0, size * of_means / of_requests) if of_requests > 0 else 1.0
    tail = (1 + CONFIDENCE) / 2
    wider = float(stdtrit(batches - 1, tail) / stdtrit(count - 1, tail))
    return float(count / effect / wider**2)


def binomial_interval(share: float, count: float) -> tuple[float, float]:
    """Return the exact interval of a share of ``count`` independent requests (any real number)."""
    from scipy.special import betaincinv

    hits, tail = share * count, (1 - CONFIDENCE) / 2
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return (0.0 if isnan(low) else low), (1.0 if isnan(high) else high)


def least_requests(share: float) -> int:
    """Return how many independent requests without a miss prove at least ``share``."""
    tail = (1 - CONFIDENCE) / 2
    return int(np.ceil(np.log(tail) / np.log(share))) if share < 1 else 0
