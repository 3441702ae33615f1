"""Statistics and checks of traces as plain text that fits 100 columns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from servetwin.app.reports.table import table_lines, wrapped
from servetwin.app.words import number

if TYPE_CHECKING:
    from servetwin.workloads.generators.named import NamedWorkload
    from servetwin.workloads.statistics.comparison import Check


_INDENT = " " * 4
_FIGURES = ("mean", "p50", "p90", "p99", "max")


def statistics_lines(figures: Mapping[str, Any]) -> list[str]:
    """Return the figures of ``workloads.statistics.statistics`` as lines."""
    return [
        f"source          {figures['source']}",
        f"requests        {figures['rows']:,} in {figures['span_s']:,.1f} s,"
        f" {figures['rate_per_s']:.3f} /s",
        f"gaps            CV {_number(figures['cv_iat'])}, local CV {_number(figures['local_cv'])},"
        f" ties {_share(figures['ties'])}",
        "dispersion      "
        + ", ".join(f"{_number(figures[f'idc_{w}s'])} over {w} s" for w in (1, 10, 60, 300))
        + " (1 = Poisson)",
        *_figures("tokens", {name: figures[f"{name}_tokens"] for name in ("prompt", "output")}),
        f"rank correlation of prompts and outputs {_number(figures['spearman_rho'])}",
        *_prefix_lines(figures["prefix"]),
        *_session_lines(figures["sessions"]),
    ]


def check_lines(checks: Sequence["Check"]) -> list[str]:
    """Return one line per check, then how many of them fail."""
    heads = ["", "trace", "reference", "apart", "limits", ""]
    failed = [check.name for check in checks if check.passes is False]
    decided = [check for check in checks if check.passes is not None]
    verdict = (
        f"{len(failed)} of {len(decided)} checks FAILED"
        if failed
        else f"{len(decided)} checks pass"
    )
    return [*table_lines(heads, map(_check_row, checks), "<>>><"), verdict]


def _prefix_lines(prefix: Mapping[str, Any] | None) -> list[str]:
    if prefix is None:
        return []
    return [
        f"prefix blocks   {prefix['blocks']:,}, {prefix['unique_blocks']:,} unique,"
        f" {_share(prefix['reused_blocks'])} of these reused;"
        f" top 1 % make {_share(prefix['top_1%_reuse'])} of reuse",
        f"ideal hits      {_hits(prefix)}"
        f" ({_share(prefix['full_block_hit_per_token'])} in full blocks)",
        *(f"  {size} blocks     {_hits(hits)}" for size, hits in prefix["coarser"].items()),
        *(f"  LRU of {share:<7}{_hits(hits)}" for share, hits in prefix["lru"].items()),
    ]


def _session_lines(sessions: Mapping[str, Any] | None) -> list[str]:
    if sessions is None:
        return []
    names = {"turns": "turns", "gap_s": "gap s", "fresh_tokens": "fresh tokens"}
    summaries = {name: sessions[key] for key, name in names.items()}
    return _figures(f"{sessions['count']:,} sessions", summaries)


def _check_row(check: "Check") -> list[str]:
    verdict = {True: "pass", False: "FAIL", None: f"- {check.note}"}[check.passes]
    figures = (number(check.value, 1.0), number(check.reference, 1.0), _number(check.apart))
    return [check.name, *figures, _limits(check), verdict]


def _limits(check: "Check") -> str:
    if check.measure == "ratio":
        return f"ratio {check.low:.3g} to {check.high:.3g}"
    return f"{'KS' if check.measure == 'KS' else 'apart'} at most {check.high:g}"


def _figures(title: str, summaries: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    rows = [
        [f"  {name}", *("-" if summary[at] is None else f"{summary[at]:,.1f}" for at in _FIGURES)]
        for name, summary in summaries.items()
    ]
    return table_lines([title, *_FIGURES], rows)


def _hits(hits: Mapping[str, Any] | None) -> str:
    if hits is None:
        return "-"
    return f"{_share(hits['hit_per_block'])} of blocks, {_share(hits['hit_per_token'])} of tokens"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def named_lines(workloads: Mapping[str, "NamedWorkload"]) -> list[str]:
    """Return what each named workload is, where its figures are from, and its options."""
    lines = []
    for name, workload in workloads.items():
        more = (f"{_INDENT}{text}" for text in (workload.source, workload.as_arguments()))
        lines += wrapped([f"{name}: {workload.what}", *more], _INDENT)
    return lines
