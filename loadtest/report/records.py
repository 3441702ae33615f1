"""The columns of a measured run, how well its load was delivered, and its outages."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from servetwin.loadtest.report.rows import Row
from servetwin.loadtest.report.token_counts import token_count_warnings
from servetwin.sim.records.columns import Frame
from servetwin.sim.records.metrics import REASONING_COLUMNS, REQUEST_COLUMNS, derive, describe
from servetwin.sim.records.run import Run
from servetwin.workloads.program.package import shipped_json
from servetwin.workloads.rows import counted

# The columns of the tables of a load test, and what is in them.
MEANINGS: dict[str, dict[str, str]] = shipped_json("loadtest/report/columns.json")
# The columns of a load test beside ``REQUEST_COLUMNS``.
EXTRA_MEANINGS = MEANINGS["requests"]
EXTRA_COLUMNS = tuple(EXTRA_MEANINGS)

SCHEDULE_LAG = "schedule lag p99"
# A client later than this at p99, in its schedule or its event loop, limits the load.
LATE_S = 0.020
LATE_SHARE_OF_TTFT = 0.01
# Every process on a busy machine wakes this late; a smaller delay of the loop is no limit.
LATE_LEAST_S = 0.005
# A process that uses more CPU than this is late.
FULL_CPU_SHARE = 0.9


def requests_frame(rows: Sequence[Row], warm_up_s: float = 0.0) -> Frame:
    """Return the rows and what is computed from them, in the columns of a load test."""
    import pandas as pd

    frame = derive(pd.DataFrame(rows))
    frame["warm_up"] = frame["scheduled_s"] < warm_up_s
    frame["ttft_sent_s"] = frame["first_token_s"] - frame["sent_s"]
    reasons = "reasoning_tokens" in frame and frame["reasoning_tokens"].any()
    return frame[[*REQUEST_COLUMNS, *EXTRA_COLUMNS, *(REASONING_COLUMNS if reasons else ())]]


def delivered(
    requests: Frame, oversleeps_s: Sequence[float], cpu_share: float, forced: bool = False
) -> dict[str, Any]:
    """Return how well the load was delivered: rates, lateness, failures, and the client's verdict.

    ``lag`` is sent - scheduled; ``cpu_share`` is the client's CPU time per second, of the busiest
    process. ``not_sent`` and ``in_flight`` count the requests that the end of the test cut off.
    Output lengths were ``forced``. The verdict is "client limited", with its reasons in
    ``limited_by``, when

    - lag p99 exceeds 20 ms and 1 % of the median TTFT,
    - the event loop wakes later at p99 than the median TPOT (at least 5 ms, at most 20 ms), since
      stamps may be as late,
    - or the client uses more than 90 % of a core.
    """
    lag_s = describe(requests["sent_s"] - requests["scheduled_s"])
    oversleep_p99_s = describe(oversleeps_s)["p99"]
    failures = requests["error"].value_counts()
    cut_off = requests["sent_s"].notna()[requests["error"] == "cancelled"]
    limits = [
        _over(SCHEDULE_LAG, lag_s["p99"], _lag_limit_s(requests)),
        _over("event loop late p99", oversleep_p99_s, _oversleep_limit_s(requests)),
        f"CPU {cpu_share:.0%}" if cpu_share > FULL_CPU_SHARE else None,
    ]
    limited_by = [limit for limit in limits if limit]
    verdict = "client limited" if limited_by else "client ok"
    return {
        "offered_per_s": _rate_per_s(requests["scheduled_s"]),
        "sent_per_s": _rate_per_s(requests["sent_s"].dropna()),
        "lag_p50_s": lag_s["p50"],
        "lag_p99_s": lag_s["p99"],
        "loop_oversleep_p99_s": oversleep_p99_s,
        "client_cpu_share": cpu_share,
        "verdict": verdict if lag_s["count"] else "nothing sent",
        "limited_by": limited_by if lag_s["count"] else [],
        "token_doubts": token_count_warnings(requests, forced),
        "not_sent": int((~cut_off).sum()),
        "in_flight": int(cut_off.sum()),
        "failures": {str(kind): int(count) for kind, count in failures.items()},
    }


def _lag_limit_s(requests: Frame) -> float:
    return max(LATE_S, LATE_SHARE_OF_TTFT * (describe(requests["ttft_s"])["p50"] or 0.0))


def _oversleep_limit_s(requests: Frame) -> float:
    tpot_s = describe(requests["tpot_s"])["p50"]
    return LATE_S if tpot_s is None else min(LATE_S, max(LATE_LEAST_S, tpot_s))


def _over(what: str, found_s: float | None, limit_s: float) -> str | None:
    if found_s is None or found_s <= limit_s:
        return None
    return f"{what} {found_s * 1e3:.3g} ms, over {limit_s * 1e3:.3g} ms"


def _rate_per_s(stamps_s: Any) -> float | None:
    """Return the mean rate (n - 1) / span, as of a trace; None where the span is 0."""
    span_s = float(stamps_s.max() - stamps_s.min()) if len(stamps_s) else 0.0
    return (len(stamps_s) - 1) / span_s if span_s > 0 else None


_LISTED = 3
_REFUSED, _BROKEN = "connect", "broken_stream"


def outages(requests: Frame) -> list[dict[str, Any]]:
    """Return the times in which no connection was to be had.

    ``from_s`` is when its first request was sent, ``to_s`` when the first one was that got a
    connection again; None where none did. ``lost`` counts the requests between the two.
    """
    if not (requests["error"] == _REFUSED).any():
        return []
    sent = requests[requests["sent_s"].notna()].sort_values("sent_s", kind="stable")
    rows = zip(sent["sent_s"].tolist(), sent["error"].tolist(), strict=True)
    parts = [list(part) for _, part in groupby(rows, key=lambda row: row[1] in (_REFUSED, _BROKEN))]
    return [
        {"from_s": part[0][0], "to_s": after[0][0] if after else None, "lost": len(part)}
        for part, after in zip(parts, [*parts[1:], None], strict=True)
        if any(error == _REFUSED for _, error in part)
    ]


def outage_lines(gaps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each of the first gaps, and one for the others together."""
    for outage in gaps[:_LISTED]:
        yield f"NO CONNECTION {_when(outage)}: {counted(outage['lost'], 'request')} lost"
    if more := gaps[_LISTED:]:
        lost = counted(sum(outage["lost"] for outage in more), "request")
        yield f"NO CONNECTION {counted(len(more), 'more time')}: {lost} lost"


def _when(outage: Mapping[str, Any]) -> str:
    from_s, to_s = outage["from_s"], outage["to_s"]
    return f"from {from_s:.2f} s to {'the end' if to_s is None else f'{to_s:.2f} s'}"


def client_limits(run: Run, late_sends: bool = True) -> list[str]:
    """Return why the client of a run was limited; empty if it kept up."""
    limits: list[str] = run.extra.get("delivered", {}).get("limited_by", [])
    return [why for why in limits if late_sends or not why.startswith(SCHEDULE_LAG)]
