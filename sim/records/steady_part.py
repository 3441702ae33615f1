"""The steady part of a run: the requests between the filling of the server and its draining.

One rule for simulations and load tests. The series is the number of requests in the system that
each request finds on arrival: it grows from 0 while the server fills, without the chance of the
requests' own lengths that latencies have, and it grows to the end where more arrives than is
served. MSER-5 finds where the filling ends: in batch means of five, the start is cut where the
standard error of what remains is least.

The first half is searched. A minimum at its end means that the run never settles (White, "An
effective truncation heuristic for bias reduction in simulation output", 1997; batches of five:
White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics for simulation",
2000). A queue that grows may have an earlier minimum by chance, so a run whose number in the system
grows throughout never settles either.

The steady part ends at the last arrival. From then on nothing arrives, so draining needs no
statistic, and a cut by when requests end would leave out the long ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from servetwin.sim.records.columns import Columns, Table, columns_of, rows_of

# The names of the two on consoles, in tables and on pages.
WHOLE_RUN, STEADY_PART = "whole run", "steady part"
BATCH = 5
# With fewer, ten batches, nothing can be said about settling.
MIN_REQUESTS = 50
# Growth above this share of the arrivals is no fluctuation of a stable queue.
GROWING_SHARE = 0.05
# A queue that is longer by fewer requests at the end may be one burst.
LEAST_RISE = 10.0


@dataclass(frozen=True, slots=True)
class SteadyPart:
    """``requests`` are the rows of the steady part in order of arrival.

    ``unsettled`` says why there are none; None where there are some.
    """

    requests: Columns
    unsettled: str | None = None


def steady_part(requests: Table) -> SteadyPart:
    """Find the steady part of a run; ``requests`` have the columns ``REQUEST_COLUMNS``."""
    columns = columns_of(requests)
    arrived = rows_of(columns, np.argsort(columns["scheduled_s"], kind="stable"))
    none = rows_of(arrived, slice(0))
    if len(arrived["status"]) < MIN_REQUESTS:
        return SteadyPart(none, f"fewer than {MIN_REQUESTS} requests")
    present = number_found(arrived)
    if _grows_throughout(present):
        why = "never settles: the number in the system grows to the end"
        return SteadyPart(none, why)
    first = mser5(present)
    if first is None:
        why = "never settles: MSER-5 finds no end of the filling in the first half"
        return SteadyPart(none, why)
    return SteadyPart(rows_of(arrived, slice(first, None)))


def is_growth(rise: float, requests: int) -> bool:
    """Return whether more arrives than is served.

    ``rise`` is the mean number in the last quarter of the arrivals less that in the second.
    """
    return rise >= LEAST_RISE and rise >= GROWING_SHARE * requests / 2


def _grows_throughout(present: npt.NDArray[np.float64]) -> bool:
    quarter = len(present) // 4
    rise = present[-quarter:].mean() - present[quarter : 2 * quarter].mean()
    return is_growth(float(rise), len(present))


def number_found(arrived: Table) -> npt.NDArray[np.float64]:
    """Return how many earlier requests are in the system when each arrives.

    ``arrived`` is in order of arrival. A request without a last token is not counted: when it
    left is not known.
    """
    ends_s = np.asarray(arrived["last_token_s"], float)
    known = np.isfinite(ends_s)
    came = np.cumsum(known) - known
    left = np.searchsorted(np.sort(ends_s[known]), arrived["scheduled_s"], side="right")
    return np.asarray(came - left, dtype=float)


def mser5(values: npt.ArrayLike) -> int | None:
    """Return how many values to leave out at the start; None where the series never settles."""
    series = np.asarray(values, dtype=float)
    batches = len(series) // BATCH
    means = series[: batches * BATCH].reshape(batches, BATCH).mean(axis=1)
    ordered = np.sort(means)  # np.median would import numpy.ma, in 20 ms
    means = means - (ordered[(batches - 1) // 2] + ordered[batches // 2]) / 2
    # A constant series is exactly 0 now, and its sums too.
    remaining = np.arange(batches, 0, -1)
    sums, squares = (np.cumsum(part[::-1])[::-1] for part in (means, means**2))
    squared_error = (squares - sums**2 / remaining) / remaining**2
    cut = int(np.argmin(squared_error[: batches // 2 + 1]))
    return BATCH * cut if cut < batches // 2 else None


def describe_steady(steady: Mapping[str, Any]) -> str:
    """Return the steady part of a summary in a sentence."""
    if steady["unsettled"]:
        return f"{STEADY_PART}: none; {steady['unsettled']}"
    return (
        f"{STEADY_PART}: from {steady['start_s']:.1f} s, when the server has filled, to the last "
        f"arrival at {steady['end_s']:.1f} s; {steady['requests']} requests"
    )
