"""The report of a load test as plain text under 100 columns."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from servetwin.loadtest.report.load_notes import cut_off, load_notes, load_warnings, wrapped
from servetwin.loadtest.report.records import gaps_s
from servetwin.sim.records.metrics import (
    LATENCIES,
    SLO,
    describe,
    duration,
    duration_unit,
    measured,
)
from servetwin.sim.records.run import Run
from servetwin.sim.records.steady_part import describe_steady
from servetwin.workloads.generators.generate import SOURCE
from servetwin.workloads.rows import counted

_POINTS = ("mean", "p50", "p90", "p95", "p99", "max")
_FIRM_P99 = 100
_LATENCY_ROWS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E latency"}
_LEGEND = """\
TTFT = first token - scheduled; TTFT from sent = first token - sent; E2E = last token - scheduled
TTFO = first token that is not reasoning - sent, where some are reasoning
TPOT = (last token - first token) / (output tokens - tokens of the first chunk)
chunk gap (ITL) = between consecutive chunks of a request, all requests together
decode TPS = 1 / TPOT; request TPS = output tokens / E2E; finished requests only"""


def render_report(run: Run, slo: SLO | None = None, folder: Path | None = None) -> str:
    """Return what ran, whether the load was delivered, the metrics, the failures, the files."""
    summary = run.summary(slo)
    blocks = [
        _what_ran(run),
        _load_delivered(summary["delivered"]),
        *map(wrapped, load_warnings(summary["delivered"])),
        *load_notes(run),
        "",
        _table(measured(run.requests), summary),
        _totals(summary),
        "",
        *_steady(summary["steady"]),
        "",
        _outcome(run, summary),
        *([_slo_line(slo, summary)] if slo else []),
        *(wrapped(f"note: {note}") for note in run.scenario["notes"]),
        *([f"files: {folder}"] if folder else []),
        "",
        _LEGEND,
    ]
    return "\n".join(blocks)


def _what_ran(run: Run) -> str:
    scenario, endpoint = run.scenario, run.scenario["endpoint"]
    length = "forced" if endpoint["force_length"] else "free"
    prompts = {"ids": "token ids", "text": "text"}[endpoint["prompt"]]
    api = f"{endpoint.get('dialect', 'openai')} {endpoint['api']}"
    return (
        f"load test of {endpoint['model']} at {endpoint['base_url']}\n"
        f"{_requests(scenario)} {_pace(scenario)}; "
        f"{api}, prompts as {prompts}, output length {length}"
    )


def _requests(scenario: Mapping[str, Any]) -> str:
    count, trace = scenario["requests"], scenario["trace"]
    return f"{count} generated requests" if trace == SOURCE else f"{count} requests of {trace}"


def _pace(scenario: Mapping[str, Any]) -> str:
    users = scenario.get("options", {}).get("concurrency")
    if users is not None:
        return f"in a closed loop of {counted(users, 'user')}"
    rate = f"at {scenario['rate_per_s']:.4g}/s"
    return f"{rate}, follow-ups after answers" if scenario.get("closed_loop") else rate


def _load_delivered(delivered: Mapping[str, Any]) -> str:
    processes = delivered.get("processes", 1)
    return wrapped(
        f"load delivered: offered {_number(delivered['offered_per_s'])}/s, "
        f"sent {_number(delivered['sent_per_s'])}/s, lag p99 {duration(delivered['lag_p99_s'])}, "
        f"loop late p99 {duration(delivered['loop_oversleep_p99_s'])}, "
        f"{f'{processes} processes, ' if processes > 1 else ''}"
        f"CPU {delivered['client_cpu_share']:.0%}: {delivered['verdict']}"
    )


def _table(requests: pd.DataFrame, summary: Mapping[str, Any]) -> str:
    finished = requests[requests["status"] == "finished"]
    rows = [
        _durations(_LATENCY_ROWS["ttft_s"], summary["ttft_s"]),
        _durations("TTFT from sent", describe(finished["ttft_sent_s"])),
        *([_durations("TTFO", describe(finished["ttfo_s"]))] if _has_reasoning(finished) else []),
        _durations(_LATENCY_ROWS["tpot_s"], summary["tpot_s"]),
        _durations("chunk gap (ITL)", describe(gaps_s(finished["chunk_s"]))),
        _durations(_LATENCY_ROWS["e2e_s"], summary["e2e_s"]),
        ("decode TPS, tokens/s", summary["decode_tps"], 1.0),
        ("request TPS, tokens/s", summary["request_tps"], 1.0),
    ]
    title = _title(requests, summary["delivered"])
    head = f"{title:22}{'count':>7}" + "".join(f"{point:>11}" for point in _POINTS)
    lines = [head, *(_row(name, figures, scale) for name, figures, scale in rows)]
    if any(0 < figures["count"] < _FIRM_P99 for _, figures, _ in rows):
        lines.append(f"* fewer than {_FIRM_P99} values: not a firm p99")
    return "\n".join(lines)


def _has_reasoning(requests: pd.DataFrame) -> bool:
    """Return whether the first token of some request was reasoning."""
    return "ttfo_s" in requests and bool((requests["ttfo_s"] > requests["ttft_sent_s"]).any())


def _title(requests: pd.DataFrame, delivered: Mapping[str, Any]) -> str:
    """Return what the figures below hold beside the server's own time."""
    if delivered.get("limited_by"):
        return "(client limited)"
    retried = int((requests["attempts"] > 1).sum()) if "attempts" in requests else 0
    return f"({retried} retried)" if retried else ""


def _steady(steady: Mapping[str, Any]) -> Iterator[str]:
    """Yield the steady part: a sentence, and its latencies and throughput where there is one."""
    yield describe_steady(steady)
    if not steady["unsettled"]:
        for name in LATENCIES:
            yield _row(*_durations(_LATENCY_ROWS[name], steady[name]))
        yield (
            f"output throughput {_number(steady['output_throughput_tokens_per_s'])} tokens/s, "
            f"{_number(steady['request_throughput_per_s'])} requests/s"
        )


def _durations(name: str, figures: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], float]:
    """Return a row of durations: its name with the unit, the figures, the factor to the unit."""
    unit, factor = duration_unit(figures[point] for point in _POINTS)
    return f"{name}, {unit}", figures, factor


def _row(name: str, figures: Mapping[str, Any], scale: float) -> str:
    cells = "".join(_cell(figures, point, scale) for point in _POINTS)
    return f"{name:22}{figures['count']:7}{cells}".rstrip()


def _cell(figures: Mapping[str, Any], point: str, scale: float) -> str:
    if figures[point] is None:
        return f"{'-':>10} "
    mark = "*" if point == "p99" and figures["count"] < _FIRM_P99 else " "
    return f"{figures[point] * scale:>10.2f}{mark}"


def _totals(summary: Mapping[str, Any]) -> str:
    return (
        f"output throughput {_number(summary['output_throughput_tokens_per_s'])} tokens/s, "
        f"{_number(summary['request_throughput_per_s'])} requests/s "
        f"over {summary['makespan_s']:.2f} s; {summary['output_tokens']} tokens out, "
        f"{summary['prompt_tokens']} in"
    )


def _outcome(run: Run, summary: Mapping[str, Any]) -> str:
    counts, delivered = summary["requests"], summary["delivered"]
    parts = [f"{counts[name]} {name}" for name in counts if name != "total" and counts[name]]
    lines = [f"{counts['total']} requests: {', '.join(parts)}"]
    messages = dict(delivered["first_messages"])
    if delivered.get("not_sent") and delivered.get("in_flight"):
        messages["cancelled"] = cut_off(delivered)
    lines += [
        f"  {count} x {kind}: {messages.get(kind, '')}"[:99]
        for kind, count in delivered["failures"].items()
    ]
    counted_in = measured(run.requests)
    finished = counted_in[counted_in["status"] == "finished"]
    short = int((finished["output_tokens"] < finished["asked_output_tokens"]).sum())
    if short:
        lines.append(f"  {short} finished with fewer tokens than in the trace")
    return "\n".join(lines)


def _slo_line(slo: SLO, summary: Mapping[str, Any]) -> str:
    limits = [(name, getattr(slo, name)) for name in LATENCIES]
    terms = ", ".join(
        f"{name[:-2]} <= {duration(limit)}" for name, limit in limits if limit is not None
    )
    met, goodput = _number(summary["slo_attainment"], ".1%"), _number(summary["goodput_per_s"])
    return f"SLO {terms}: met by {met} of all scheduled requests, goodput {goodput}/s"


def _number(value: float | None, form: str = ".4g") -> str:
    return "-" if value is None else f"{value:{form}}"
