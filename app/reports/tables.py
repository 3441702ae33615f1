"""Plain-text tables that fit 100 columns."""

from collections import Counter
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from servetwin.app.reports.table import WIDTH, table_lines, wrapped
from servetwin.app.words import METRICS, ends, number
from servetwin.sim.records.metrics import LIMITED, SLO, describe, duration, gaps_s
from servetwin.sim.records.run import Run
from servetwin.sim.records.steady_part import STEADY_PART, WHOLE_RUN, describe_steady
from servetwin.workloads.rows import counted

if TYPE_CHECKING:
    from servetwin.sim.experiments.scenario import Scenario


POINTS = ("mean", "p50", "p90", "p95", "p99", "max")
_METRICS = (*LIMITED, "decode_tps", "request_tps")


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
        *wrapped([named], "  "),
    ]


def totals_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the figures of a whole simulation, and how fast it was."""
    speed = summary["simulation"]
    return [
        f"output throughput {summary['output_throughput_tokens_per_s'] or 0:.1f} tokens/s over "
        f"{summary['makespan_s']:.1f} s, prefix hits "
        f"{100 * (summary['prefix_hit_rate_tokens'] or 0):.2f} % of prompt tokens, "
        f"{summary['preemptions']} preemptions",
        *reasoning_lines(summary),
        f"simulated {speed['steps']} steps in {speed['wall_s']:.2f} s "
        f"({speed['requests_per_s']:.0f} requests/s)",
    ]


def reasoning_lines(summary: Mapping[str, Any], slo: SLO | None = None) -> list[str]:
    """Return how many output tokens are hidden; where none is, what a limit of TTFO is of."""
    if not (hidden := summary.get("reasoning_tokens")):
        of_first = "no answer marks its reasoning: the SLO's TTFO is the TTFT"
        return [of_first] if slo and slo.ttfo_s else []
    tokens = summary["output_tokens"]
    return [f"reasoning {hidden:,} of {tokens:,} output tokens ({100 * hidden / tokens:.1f} %)"]


def task_lines(summary: Mapping[str, Any], devices: int = 0) -> list[str]:
    """Return the figures of tasks on so many devices, and by turn; nothing without tasks."""
    if not (tasks := summary.get("tasks")):
        return []
    per_hour, turns, tokens = tasks["per_hour"] or 0.0, tasks["turns"], tasks["tokens"]
    if not tasks["total"]:
        return [
            "",
            "no task ran from its first turn to its last",
            *lane_lines(summary.get("lanes", {})),
        ]
    of_one = f", {number(per_hour / devices, 1.0)} per device-hour" if devices else ""
    rows = []
    for row in tasks["by_turn"]:
        times = (duration(row["ttft_s"][point]) for point in ("mean", "p50", "p90"))
        found = (row["prefix_hit_rate_tokens"], row.get("endless_hit_rate_tokens"))
        hits = ("-" if share is None else f"{100 * share:.1f} %" for share in found)
        rows.append([f"{row['from_turn']}", f"{row['requests']}", *times, *hits])
    heads = ["from turn", "requests", "TTFT mean", "p50", "p90", "prefix hits", "endless cache"]
    return [
        "",
        f"{counted(tasks['total'], 'task')}: {tasks['finished']:,} finished, "
        f"{number(per_hour, 1.0)} per hour{of_one}; of {number(turns['mean'], 1.0)} requests and "
        f"{number(tokens['mean'], 1.0)} tokens on average",
        *(table_lines(heads, rows, ">>>>>>>") if rows else []),
        *lane_lines(summary.get("lanes", {})),
    ]


def fleet_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return what the replicas of a fleet cost and did, and what happened; nothing without one."""
    if not (fleet := summary.get("fleet")):
        return []
    from servetwin.sim.core.fleet.fleet import COUNTS

    sizes, hours = [size for _, size in fleet["sizes"]], fleet["replica_hours"]
    parts = [f"{min(sizes)} to {max(sizes)} replicas serve, {number(hours, 1.0)} replica-hours"]
    if price := fleet.get("price"):
        parts.append(f"{price:,.2f} at list prices")
    if least := fleet.get("least_replica_hours"):
        parts.append(f"an ideal autoscaler needs at least {number(least, 1.0)}")
    if (attainment := summary.get("slo_attainment")) is not None:
        parts.append(f"SLO attainment {100 * attainment:.2f} %")
    fails = fleet["crashes"] + fleet["partitions"]
    for name in COUNTS:  # failures say what was lost, even if nothing was
        if fleet[name] or (fails and name in ("lost", "retried")):
            parts.append(f"{name.replace('_', ' ')} {fleet[name]:,}")
    return ["", *wrap("; ".join(parts), WIDTH, subsequent_indent="  ")]


def lane_lines(lanes: Mapping[str, Any]) -> list[str]:
    """Return what became of the lanes of a run, and which rules it broke; nothing without lanes."""
    if not lanes:
        return []
    begun_s = lanes["measured_from_s"]
    phase = "never began" if begun_s is None else f"began after {duration(begun_s)}"
    line = (
        f"{counted(lanes['lanes'], 'lane')}: {lanes['replays']:,} replays, {lanes['drained']:,} "
        f"drained; {counted(lanes['warm_up_turns'], 'warm-up turn')}, then the measured phase of "
        f"{lanes['duration_s']:g} s {phase}"
    )
    counts = {
        "began cold (no turn before t*)": lanes["cold_lanes"],
        f"of {lanes['sessions']:,} sessions outgrew the context": lanes["overflowed"],
    }
    more = [f"{count} {words}" for words, count in counts.items() if count]
    broken = [f"not {lanes['scenario']}: {rule}" for rule in lanes["broken"]]
    ended = [f"ended early: {reason}"] if (reason := lanes["ended_early"]) else []
    return [*wrapped(["; ".join([line, *more])], "  "), *ended, *broken]


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
    return wrapped((f"note: {note}" for note in notes), " " * 6)


def latency_table(
    summary: Mapping[str, Any],
    intervals: Mapping[str, Any],
    names: Iterable[str] = _METRICS,
    soft: str = "",
) -> list[str]:
    """Return metrics as rows; with intervals, the mean's 5 % to 95 % interval in a last column.

    ``soft`` marks a p99 of few values.
    """
    rows = []
    for name in filter(summary.__contains__, names):
        figures = summary[name]
        metric = METRICS[name].fitting(figures[point] for point in POINTS)
        cells = [number(figures[point], metric.factor) for point in POINTS]
        if is_soft(figures):
            cells[POINTS.index("p99")] += soft
        interval = intervals.get(f"{name}.mean")
        rows.append([f"{metric.label} {metric.unit}", *cells, _interval(interval, metric.factor)])
    lines = table_lines(["", *POINTS, "mean, 5-95 %"], rows, "<>>>>>><")
    return lines if intervals else [line.removesuffix("mean, 5-95 %").rstrip() for line in lines]


# Values from which on a p99 is firm.
FIRM_P99 = 100


def is_soft(figures: Mapping[str, Any]) -> bool:
    """Return whether a p99 is of few values."""
    return bool(0 < figures["count"] < FIRM_P99)


def described(run: Run) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """Return count, mean, percentiles and maximum of every metric that a request has.

    They are of the whole run and, where there is one, of its steady part.
    """
    summary = run.summary()
    figures = {name: summary[name] for name in LIMITED if name in summary}
    finished = run.requests[run.requests["status"] == "finished"]
    if "ttft_sent_s" in run.requests:
        figures["ttft_sent_s"] = describe(finished["ttft_sent_s"])
    if "chunk_s" in run.requests:
        figures["gap_s"] = describe(gaps_s(finished["chunk_s"]))
    figures |= {name: summary[name] for name in ("decode_tps", "request_tps")}
    steady = summary["steady"]
    settled = () if steady["unsettled"] else figures.keys() & steady.keys()
    return {WHOLE_RUN: figures, STEADY_PART: {name: steady[name] for name in settled}}


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
