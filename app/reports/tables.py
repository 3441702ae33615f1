"""Plain-text tables that fit 100 columns."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from servetwin.app.reports.table import table_lines
from servetwin.app.words import METRICS, ends, number
from servetwin.sim.records.metrics import LATENCIES
from servetwin.sim.records.steady_part import describe_steady

if TYPE_CHECKING:
    from servetwin.sim.experiments.scenario import Scenario


WIDTH = 100
_POINTS = ("mean", "p50", "p90", "p95", "p99", "max")
_METRICS = ("ttft_s", "tpot_s", "e2e_s", "decode_tps", "request_tps")


def scenario_lines(source: str, scenario: "Scenario", record: Mapping[str, Any]) -> list[str]:
    """Return what is simulated: the trace's source, the policies, and the servers.

    ``record`` is what ``scenario.yaml`` says of the servers.
    """
    config = scenario.policies
    return [
        *server_lines([scenario], record),
        f"{source}: {scenario.name}, {config.kv_size_tokens} KV tokens, at most "
        f"{config.max_seqs} sequences",
    ]


def server_lines(scenarios: Iterable["Scenario"], record: Mapping[str, Any]) -> list[str]:
    """Return a description of the servers, and their techniques on and off as they were named."""
    servers = (server for scenario in scenarios for server in scenario.servers())
    toggles = ((name, record.get(name)) for name in ("techniques", "without"))
    named = "; ".join(f"{name} {', '.join(texts)}" for name, texts in toggles if texts)
    return [
        *dict.fromkeys(line for server in servers for line in server.describe()),
        *wrap(named, WIDTH, subsequent_indent="  "),
    ]


def totals_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the figures of a whole simulation, and how fast it was."""
    speed = summary["simulation"]
    return [
        f"output throughput {summary['output_throughput_tokens_per_s'] or 0:.1f} tokens/s over "
        f"{summary['makespan_s']:.1f} s, prefix hits "
        f"{100 * (summary['prefix_hit_rate_tokens'] or 0):.2f} % of prompt tokens, "
        f"{summary['preemptions']} preemptions",
        f"simulated {speed['steps']} steps in {speed['wall_s']:.2f} s "
        f"({speed['requests_per_s']:.0f} requests/s)",
    ]


def counts_line(counts: Mapping[str, int]) -> str:
    """Return ``240 requests: 240 finished``, and the other endings where there are any."""
    others = {name: n for name, n in counts.items() if name not in ("total", "finished")}
    endings = [f"{n} {name}" for name, n in others.items() if n]
    return ", ".join([f"{counts['total']} requests: {counts['finished']} finished", *endings])


def error_lines(errors: Iterable[str] | Mapping[str, int], most: int = 3) -> list[str]:
    """Return the most frequent errors with their counts, one line each; empty ones are none."""
    counts = Counter({error: count for error, count in Counter(errors).items() if error})
    lines = [f"  {count} x {error}" for error, count in counts.most_common(most)]
    if len(counts) > most:
        lines.append(f"  and {len(counts) - most} other reasons")
    return [line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in lines]


def note_lines(notes: Iterable[str]) -> list[str]:
    """Return the notes, wrapped to the width of a table."""
    wrapped = (wrap(f"note: {note}", WIDTH, subsequent_indent=" " * 6) for note in notes)
    return list(chain.from_iterable(wrapped))


def latency_table(summary: Mapping[str, Any], intervals: Mapping[str, Any]) -> list[str]:
    """Return metrics as rows; with intervals, the mean's 5 % to 95 % interval in a last column."""
    rows = []
    for name in _METRICS:
        figures = summary[name]
        metric = METRICS[name].fitting(figures[point] for point in _POINTS)
        cells = [number(figures[point], metric.factor) for point in _POINTS]
        interval = intervals.get(f"{name}.mean")
        rows.append([f"{metric.label} {metric.unit}", *cells, _interval(interval, metric.factor)])
    lines = table_lines(["", *_POINTS, "mean, 5-95 %"], rows, "<>>>>>><")
    return lines if intervals else [line.removesuffix("mean, 5-95 %").rstrip() for line in lines]


def steady_lines(steady: Mapping[str, Any]) -> list[str]:
    """Return the steady part of a summary: a sentence, and the same metrics as rows."""
    if steady["unsettled"]:
        return [describe_steady(steady)]
    throughput = steady["output_throughput_tokens_per_s"]
    return [
        describe_steady(steady),
        *latency_table(steady, {}),
        f"output throughput {number(throughput, 1.0)} tokens/s",
    ]


def _interval(interval: Mapping[str, float] | None, factor: float) -> str:
    if interval is None:
        return ""
    return "-".join(ends(interval["p5"], interval["p95"], lambda end: number(end, factor)) or ())


SPARKLINE_WIDTH = 50
_LEVELS = " ▁▂▃▄▅▆▇█"
_LOG_FROM = 20.0
"""A range of this ratio or more is divided by ratios, or the tail would hide the rest."""


def sparkline(values: pd.Series, width: int = SPARKLINE_WIDTH) -> str:
    """Draw the counts of the defined values in ``width`` equal parts of their range, as blocks.

    Any value shows at least the lowest block. The range is divided into equal ratios where the
    largest value is at least 20 times the least.
    """
    defined = values.to_numpy(dtype=float)
    defined = defined[np.isfinite(defined)]
    if not len(defined):
        return ""
    counts = _counts(np.log(defined) if _is_wide(defined) else defined, width)
    levels = np.ceil(counts / counts.max() * (len(_LEVELS) - 1)).astype(int)
    return "".join(_LEVELS[level] for level in levels)


def sparkline_lines(requests: pd.DataFrame) -> list[str]:
    """Draw TTFT, TPOT and E2E latency of finished requests, a line each: least, blocks, most."""
    finished = requests[requests["status"] == "finished"]
    lines = []
    for name in LATENCIES:
        values = finished[name].dropna()
        if len(values):
            metric = METRICS[name].fitting([values.max()])
            values = values * metric.factor
            scale = " (log)" if _is_wide(values.to_numpy(dtype=float)) else ""
            label, least = f"{metric.label} {metric.unit}", f"{values.min():.4g}"
            lines.append(f"{label:<16}{least:>9} {sparkline(values)} {values.max():.4g}{scale}")
    return lines


def _counts(values: npt.NDArray[np.float64], width: int) -> npt.NDArray[np.int64]:
    """Count the values in each of ``width`` parts; all are in the first where they are nearly
    equal."""
    least, span = values.min(), np.ptp(values)
    if span <= 1e-9 * np.abs(values).max():
        return np.bincount([0], [len(values)], width).astype(int)
    places = ((values - least) / span * width).astype(int)
    return np.bincount(places.clip(max=width - 1), minlength=width)


def _is_wide(defined: npt.NDArray[np.float64]) -> bool:
    return bool(defined.min() > 0 and defined.max() >= _LOG_FROM * defined.min())
