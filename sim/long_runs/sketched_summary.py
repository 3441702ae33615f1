"""The figures of a run whose requests come in row groups: counts are exact, quantiles sketched.

A sketch is a t-digest (Dunning and Ertl, "Computing extremely accurate quantiles using t-digests",
2019) of Apache DataSketches. Its quantiles depend on the order of the values and on nothing else.
"""

from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from servetwin.sim.records.metrics import LATENCIES, PERCENTILES, SLO, STATUSES
from servetwin.workloads.errors import ServetwinError

CENTROIDS = 8_000
"""Of a sketch: it takes about 0.15 MB, and quantiles err by less than 0.1 % of their value."""
UNSETTLED = "not looked for: a stream keeps no series of the queue"
_SUMMED = ("prompt_tokens", "output_tokens", "cached_tokens")
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
            return {"count": 0, "mean": None, **{f"p{q}": None for q in PERCENTILES}, "max": None}
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
        self._sums = dict.fromkeys((*_SUMMED, "preemptions"), 0)
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
        values = {name: finished[name].to_numpy() for name in (*LATENCIES, *_SUMMED)}
        for name in _SUMMED:
            self._sums[name] += int(values[name].sum())
        self._last_s = max(self._last_s, float(finished["last_token_s"].to_numpy().max()))
        for name in LATENCIES:
            self._sketches[name].add(values[name])
        with np.errstate(divide="ignore", invalid="ignore"):  # what is undefined is left out
            self._sketches["decode_tps"].add(1 / values["tpot_s"])
            self._sketches["request_tps"].add(values["output_tokens"] / values["e2e_s"])
        if self._slo is not None:
            self._good += int(self._slo.met(finished.to_pandas()).sum())

    def summary(self) -> dict[str, Any]:
        """Return the figures so far."""
        total, finished = self._counts.total(), self._counts["finished"]
        makespan_s = float(self._last_s - self._first_s) if finished else 0.0
        sums, described = self._sums, {n: s.describe() for n, s in self._sketches.items()}
        return {
            "requests": {"total": total, **{name: self._counts[name] for name in STATUSES}},
            **described,
            "output_throughput_tokens_per_s": _ratio(sums["output_tokens"], makespan_s),
            "request_throughput_per_s": _ratio(finished, makespan_s),
            "makespan_s": makespan_s,
            "prompt_tokens": sums["prompt_tokens"],
            "output_tokens": sums["output_tokens"],
            "prefix_hit_rate_tokens": _ratio(sums["cached_tokens"], sums["prompt_tokens"]),
            "preemptions": sums["preemptions"],
            **(self._attainment(total, makespan_s) if self._slo else {}),
            "steady": _no_steady_part(),
        }

    def _attainment(self, total: int, makespan_s: float) -> Mapping[str, float | None]:
        return {
            "goodput_per_s": _ratio(self._good, makespan_s),
            "slo_attainment": _ratio(self._good, total),
        }


def _no_steady_part() -> dict[str, Any]:
    nothing = Sketch().describe()
    return {
        "unsettled": UNSETTLED,
        "start_s": None,
        "end_s": None,
        "requests": 0,
        **{name: dict(nothing) for name in (*LATENCIES, "decode_tps", "request_tps")},
        "output_throughput_tokens_per_s": None,
        "request_throughput_per_s": None,
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
