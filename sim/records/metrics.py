"""The metrics, defined once for simulator, load tester and dashboard.

Stamps of a request, in seconds on one axis: ``scheduled_s`` (its arrival in the trace), ``sent_s``
(the client sent it; in a simulation the same), ``first_token_s``, ``last_token_s``.

===========  ==================================================================================
TTFT         first_token - scheduled: safe against coordinated omission
ttft_sent    first_token - sent
TTFO         first_output - scheduled, where requests reason: to the first token that is visible,
             which is no reasoning
TPOT         (last_token - first_token) / (output tokens - tokens of the first chunk);
             undefined, not 0, for a request of one chunk
E2E latency  last_token - scheduled
decode TPS   1 / TPOT
request TPS  output tokens / E2E latency
throughput   output tokens of the finished requests / (last token - first scheduled)
goodput      finished requests within every limit / the same span
attainment   the same requests / all scheduled, failures included, without those that the load
             test cancelled on purpose
===========  ==================================================================================

Percentiles are numpy's linear estimator. Warm-up requests are in no figure. The figures of the
steady part (``sim.records.steady_part``) stand beside those of the whole run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from servetwin.sim.records.columns import AnyArray, Columns, Frame, Table, columns_of, rows_of
from servetwin.sim.records.steady_part import SteadyPart, steady_part
from servetwin.workloads.errors import TraceError
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.request import CANCELLED_BY_TEST

Floats = npt.NDArray[np.float64]
Requests = TypeVar("Requests", Columns, Frame)

# The columns of tables and the keys of a steady part, and what is in them.
MEANINGS: dict[str, dict[str, str]] = shipped_json("sim/records/columns.json")

# The columns of ``requests.parquet``, one row per request; stamps are of one clock.
REQUEST_MEANINGS = MEANINGS["requests"]
REQUEST_COLUMNS = tuple(REQUEST_MEANINGS)
# The columns of a run in which a request reasons.
REASONING_COLUMNS = tuple(MEANINGS["reasoning"])
PERCENTILES = (50, 90, 95, 99)
LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
VISIBLE = "ttfo_s"
# What an SLO may limit.
LIMITED = ("ttft_s", VISIBLE, "tpot_s", "e2e_s", "task_s")
# What is compared of them, and has intervals.
FIGURES = tuple(f"{name}.{part}" for name in LIMITED for part in ("mean", "p50", "p90", "p99"))
SUMMED = ("prompt_tokens", "output_tokens", "cached_tokens")
_SUMMARIZED = (*LATENCIES, "last_token_s", *SUMMED)
STATUSES = ("finished", "refused", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class SLO:
    """Limits in seconds, all of which a request must meet; None is no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    task_s: float | None = None
    """The time to finish the whole task of a request (``sim.records.tasks``)."""
    ttfo_s: float | None = None
    """The time to the first visible token: the TTFT where no request reasons."""

    def met(self, requests: Table) -> npt.NDArray[np.bool_]:
        """Return which requests finished within every limit; an undefined TPOT breaks none.

        Raises ``TraceError`` for a limit on tasks where the run has none.
        """
        good = np.asarray(requests["status"] == "finished")
        for name in LIMITED:
            limit = getattr(self, name)
            if limit is not None:
                good = good & ~(_limited(requests, name) > limit)
        return good


def _limited(requests: Table, name: str) -> Floats:
    """Return what is limited; a task without a time breaks every limit, a part of one none.

    So does an answer without a visible token.
    """
    if name in LATENCIES:
        return np.asarray(requests[name], float)
    if name == VISIBLE:
        return _or_endless(requests[name if name in requests else "ttft_s"])
    if name not in requests:
        raise TraceError("--slo task: no request waits for another one, so there are no tasks")
    is_task = np.array([isinstance(task, str) for task in requests["task"]], bool)
    if not is_task.any():
        raise TraceError(
            "--slo task: no lane replayed a whole task; give --lanes a longer duration"
        )
    return np.where(is_task, _or_endless(requests[name]), np.nan)


def _or_endless(seconds: npt.ArrayLike) -> Floats:
    known_s = np.asarray(seconds, float)
    return np.where(np.isnan(known_s), np.inf, known_s)


def derive(stamps: Frame) -> Frame:
    """Return the stamps with the latencies (``latencies``).

    Without a column ``first_chunk_tokens``, the first chunk of a request is one token.
    """
    names = ("scheduled_s", "first_token_s", "last_token_s", "output_tokens", "first_output_s")
    columns = {name: stamps[name].to_numpy() for name in names if name in stamps}
    first = stamps["first_chunk_tokens"].to_numpy() if "first_chunk_tokens" in stamps else 1
    return stamps.assign(**latencies(columns, first))


def latencies(stamps: Mapping[str, AnyArray], first_chunk_tokens: AnyArray | int = 1) -> Columns:
    """Return ``LATENCIES``, in seconds, of columns of stamps and ``output_tokens``.

    With ``first_output_s`` also ``VISIBLE``.
    """
    first_s, last_s = stamps["first_token_s"], stamps["last_token_s"]
    later_tokens = np.asarray(stamps["output_tokens"] - first_chunk_tokens, dtype=float)
    since = {"ttft_s": first_s, "e2e_s": last_s, VISIBLE: stamps.get("first_output_s")}
    return {
        "tpot_s": (last_s - first_s) / np.where(later_tokens > 0, later_tokens, np.nan),
        **{name: at - stamps["scheduled_s"] for name, at in since.items() if at is not None},
    }


def measured(requests: Requests) -> Requests:
    """Return the requests that are not marked as ``warm_up``."""
    if "warm_up" not in requests:
        return requests
    rows = ~np.asarray(requests["warm_up"], bool)
    return rows_of(requests, rows) if isinstance(requests, dict) else requests[rows]


def mean_latencies(requests: Frame) -> dict[str, float]:
    """Return the mean of each of ``LATENCIES`` over requests, in seconds."""
    return {name: float(requests[name].mean()) for name in LATENCIES}


def summarize(table: Table, slo: SLO | None = None) -> dict[str, Any]:
    """Return the figures of a run; with ``slo`` also goodput and attainment.

    ``steady`` has those of its steady part (``steady_figures``).
    """
    whole = columns_of(table)
    steady = steady_figures(whole, steady_part(whole))
    requests = measured(whole)
    finished = _finished(requests)
    makespan_s = _makespan_s(requests, finished)
    statuses = Counter(requests["status"].tolist())
    prompts, outputs, cached = (int(finished[name].sum()) for name in SUMMED)
    return {
        "requests": {"total": statuses.total(), **{name: statuses[name] for name in STATUSES}},
        **_latencies(finished),
        "output_throughput_tokens_per_s": ratio(outputs, makespan_s),
        "request_throughput_per_s": ratio(statuses["finished"], makespan_s),
        "makespan_s": makespan_s,
        "prompt_tokens": prompts,
        "output_tokens": outputs,
        **{name: int(finished[name].sum()) for name in ("reasoning_tokens",) if name in finished},
        "prefix_hit_rate_tokens": ratio(cached, prompts),
        "preemptions": int(requests["preemptions"].sum()),
        **(_attainment(requests, slo, makespan_s) if slo else {}),
        "steady": steady,
    }


def steady_figures(requests: Columns, steady: SteadyPart) -> dict[str, Any]:
    """Return the figures of the steady part of a run.

    Latencies are of the requests that arrive in it, throughputs of what finishes in it, per second
    from its first arrival to its last. ``unsettled`` says why a run has none, or is None; the
    figures are then undefined.
    """
    arriving = measured(steady.requests)
    arrivals_s = np.asarray(steady.requests["scheduled_s"], float)
    start_s = float(np.nanmin(arrivals_s, initial=np.inf))
    end_s = float(np.nanmax(arrivals_s, initial=-np.inf))
    figures = {
        "unsettled": steady.unsettled,
        "start_s": None if steady.unsettled else start_s,
        "end_s": None if steady.unsettled else end_s,
        "requests": len(arriving["status"]),
        **_latencies(_finished(arriving)),
    }
    finished = _finished(requests)
    inside = (finished["last_token_s"] >= start_s) & (finished["last_token_s"] <= end_s)
    tokens = int(finished["output_tokens"][inside].sum())
    return {
        **figures,
        "output_throughput_tokens_per_s": ratio(tokens, end_s - start_s),
        "request_throughput_per_s": ratio(int(inside.sum()), end_s - start_s),
    }


def gaps_s(chunk_s: Iterable[npt.ArrayLike]) -> Floats:
    """Return the gaps between consecutive chunks of a request (ITL), all requests together."""
    return np.concatenate([np.empty(0), *map(np.diff, chunk_s)])


def describe(values: npt.ArrayLike) -> dict[str, float | int | None]:
    """Return count, mean, percentiles and maximum of the finite values; None without any."""
    defined = np.asarray(values, dtype=float)
    defined = defined[np.isfinite(defined)]
    if not len(defined):
        return {"count": 0, "mean": None, **{f"p{q}": None for q in PERCENTILES}, "max": None}
    points = np.percentile(defined, PERCENTILES)
    return {
        "count": len(defined),
        "mean": float(defined.mean()),
        **{f"p{q}": float(point) for q, point in zip(PERCENTILES, points, strict=True)},
        "max": float(defined.max()),
    }


def figure(summary: Mapping[str, Any], metric: str) -> float | None:
    """Return a figure of a summary by its path: ``figure(s, "ttft_s.p90")``."""
    value: Any = summary
    for part in metric.split("."):
        value = value[part]
    return value if value is None else float(value)


def common(metrics: Iterable[str], summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the figures that all summaries have: TTFO and times of tasks are of some runs only."""
    return [m for m in metrics if all(m.partition(".")[0] in summary for summary in summaries)]


def _finished(requests: Columns) -> Columns:
    """Return the columns that figures are made of, of the finished requests."""
    rows = requests["status"] == "finished"
    names = [*_SUMMARIZED, *(REASONING_COLUMNS if "reasoning_tokens" in requests else ())]
    return rows_of({name: requests[name] for name in names}, rows)


def _latencies(finished: Columns) -> dict[str, Any]:
    """Describe the latencies of finished requests, and decode TPS and request TPS."""
    with np.errstate(divide="ignore", invalid="ignore"):  # describe leaves out what is undefined
        rates = {
            "decode_tps": 1 / finished["tpot_s"],
            "request_tps": finished["output_tokens"] / finished["e2e_s"],
        }
    values = {**{name: finished[name] for name in LIMITED if name in finished}, **rates}
    return {name: describe(each) for name, each in values.items()}


def _makespan_s(requests: Columns, finished: Columns) -> float:
    if not len(finished["last_token_s"]):
        return 0.0
    return float(finished["last_token_s"].max() - np.nanmin(requests["scheduled_s"]))


def _attainment(requests: Columns, slo: SLO, makespan_s: float) -> dict[str, float | None]:
    if "error" in requests:
        requests = rows_of(requests, requests["error"] != CANCELLED_BY_TEST)
    met = slo.met(requests)
    good = int(met.sum())
    return {"goodput_per_s": ratio(good, makespan_s), "slo_attainment": ratio(good, len(met))}


def ratio(part: float, whole: float) -> float | None:
    """Return part / whole; None where there is no whole."""
    return part / whole if whole > 0 else None


def margins(requests: Table, slo: SLO) -> Floats:
    """Return the largest latency / limit of each request: at most 1 where it keeps the SLO."""
    worst = np.zeros(len(requests["status"]))
    for name in LIMITED:
        if (limit := getattr(slo, name)) is not None:
            worst = np.fmax(worst, _limited(requests, name) / limit)
    return np.where(np.asarray(requests["status"] == "finished"), worst, np.inf)


SECONDS_FROM_S = 10.0


def duration_unit(durations_s: Iterable[float | None]) -> tuple[str, float]:
    """Return the unit of durations that stand together, and the factor from seconds to it.

    Undefined ones (None, NaN) do not count.
    """
    longest_s = max((abs(s) for s in durations_s if s is not None and s == s), default=0.0)
    return ("s", 1.0) if longest_s >= SECONDS_FROM_S else ("ms", 1000.0)


def duration(seconds: float | None) -> str:
    """Return ``512.3 ms`` or ``305.3 s``, in four digits; ``-`` for an undefined one."""
    if seconds is None or seconds != seconds:
        return "-"
    unit, factor = duration_unit([seconds])
    value = factor * seconds
    return f"{value:.4g} {unit}" if abs(value) < 10_000 else f"{value:.0f} {unit}"
