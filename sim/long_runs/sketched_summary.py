"""The figures of a run whose requests come in row groups: counts are exact, quantiles sketched.

A sketch is a t-digest (Dunning and Ertl, "Computing extremely accurate quantiles using t-digests",
2019) of Apache DataSketches. Its quantiles depend on the order of the values and on nothing else.
"""

from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from servetwin.sim.records.metrics import (
    LATENCIES,
    PERCENTILES,
    REQUEST_COLUMNS,
    SLO,
    SUMMED,
    attainment,
    describe,
    steady_figures,
    totals,
    with_rates,
)
from servetwin.sim.records.steady_part import SteadyPart
from servetwin.workloads.errors import ServetwinError

CENTROIDS = 8_000
"""Size of a sketch: about 0.15 MB, and quantiles err by less than 0.1 % of their value."""
UNSETTLED = "not looked for: a stream keeps no series of the queue"
Floats = npt.NDArray[np.float64]


def require_sketches(option: str) -> None:
    """Raise ``ServetwinError``, which names the option, where the library is not installed."""
    if find_spec("datasketches") is None:
        raise ServetwinError(f"{option} needs datasketches: pip install 'servetwin[stream]'")


class Sketch:
    """Count, mean, maximum and sketched percentiles of the finite values that were added."""

    def __init__(self) -> None:
        self._digest: Any = import_module("datasketches").tdigest_double(CENTROIDS)
        self._count, self._sum, self._max = 0, 0.0, -np.inf

    def add(self, values: Floats) -> None:
        """Add values."""
        defined = values[np.isfinite(values)]
        if len(defined):
            self._digest.update(np.ascontiguousarray(defined))
            self._count += len(defined)
            self._sum += float(defined.sum())
            self._max = max(self._max, float(defined.max()))

    def describe(self) -> dict[str, float | int | None]:
        """Return what ``sim.records.metrics.describe`` returns of all values."""
        if not self._count:
            return describe(())
        return {
            "count": self._count,
            "mean": self._sum / self._count,
            **{f"p{q}": float(self._digest.get_quantile(q / 100)) for q in PERCENTILES},
            "max": self._max,
        }


class SketchedSummary:
    """Figures of requests that are added group by group, as ``sim.records.metrics.summarize``."""

    def __init__(self, slo: SLO | None = None) -> None:
        self._slo = slo
        self._counts: Counter[str] = Counter()
        self._sketches = {name: Sketch() for name in (*LATENCIES, "decode_tps", "request_tps")}
        self._sums = dict.fromkeys((*SUMMED, "preemptions"), 0)
        self._first_s, self._last_s = np.inf, -np.inf
        self._good = 0
        self.errors: Counter[str] = Counter()
        """Requests by what was wrong with them."""

    def add(self, group: pa.Table) -> None:
        """Add a row group of requests."""
        statuses = group["status"].to_pandas()
        self._counts.update(statuses.value_counts().to_dict())
        self.errors.update(error for error in group["error"].to_pylist() if error)
        self._first_s = min(self._first_s, float(group["scheduled_s"].to_numpy().min()))
        self._sums["preemptions"] += int(group["preemptions"].to_numpy().sum())
        finished = group.filter(pa.array(statuses == "finished"))
        if not len(finished):
            return
        values = {name: finished[name].to_numpy() for name in (*LATENCIES, *SUMMED)}
        for name in SUMMED:
            self._sums[name] += int(values[name].sum())
        self._last_s = max(self._last_s, float(finished["last_token_s"].to_numpy().max()))
        for name, each in with_rates(values).items():
            self._sketches[name].add(each)
        if self._slo is not None:
            self._good += int(self._slo.met(finished.to_pandas()).sum())

    def summary(self) -> dict[str, Any]:
        """Return the figures so far."""
        makespan_s = float(self._last_s - self._first_s) if self._counts["finished"] else 0.0
        described = {name: sketch.describe() for name, sketch in self._sketches.items()}
        total = self._counts.total()
        return {
            **totals(self._counts, described, self._sums, makespan_s),
            **(attainment(self._good, total, makespan_s) if self._slo else {}),
            "steady": _no_steady_part(),
        }


def _no_steady_part() -> dict[str, Any]:
    none = pd.DataFrame(columns=list(REQUEST_COLUMNS))
    return steady_figures(none, SteadyPart(none, UNSETTLED))
