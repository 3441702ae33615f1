"""Policies compared on the same requests: metrics, paired differences, gains of single requests."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from servetwin.app.dashboard.formatting import escaped, page_text, signed, three_digits
from servetwin.app.dashboard.metrics_row import ScenarioSummaries, ShownMetric, excludes_zero
from servetwin.app.dashboard.scenario.allowed_choices import require_all_offered
from servetwin.app.dashboard.scenario.url_state import query_of
from servetwin.app.dashboard.scenario_words import CANNOT_TELL
from servetwin.app.scenario.files.scenario_file import GENERATED, SAMPLE, ScenarioFile
from servetwin.app.words import ends
from servetwin.policies.presets import PRESETS
from servetwin.sim.experiments.paired_comparison import request_differences
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.metrics import duration_unit
from servetwin.workloads.errors import PolicyError, ServetwinError

POLICIES_KEY = "compare_policies"
"""The control that names the policies, in the session and in the link."""
OWN_LABEL = "this scenario"
MOST_POLICIES = 6
DEFAULT_LABELS = (OWN_LABEL, "static+contiguous", "chunked+paged+prefix")
_LABELS = (
    "static+contiguous", "continuous+contiguous", "continuous+paged", "prefill-first+paged",
    "chunked+paged", "chunked+paged+prefix",
)  # fmt: skip


def policy_labels() -> list[str]:
    """Return the labels to choose from; any other label of ``replay compare`` can be typed."""
    return [OWN_LABEL, *_LABELS, *PRESETS]


def scenario_under(scenario: ScenarioFile, text: str) -> ScenarioFile:
    """Return the scenario under policies as for ``replay compare``, joined by ``+`` or spaces.

    Raises ``ServetwinError`` where one is unknown, or not offered here.
    """
    parts = text.replace("+", " ").split()
    if text == OWN_LABEL or not parts:
        return scenario
    try:
        changed = scenario.with_policies("+".join(parts))
    except ServetwinError as error:
        raise PolicyError(str(error).removeprefix("replay compare: ")) from None
    require_all_offered(changed)
    return changed


def figures_table(
    sides: Mapping[str, ScenarioSummaries], metrics: Sequence[ShownMetric]
) -> pd.DataFrame:
    """Return a row per policy: value and 90 % interval of each metric, as text."""
    columns = _in_one_unit(metrics, sides)
    return pd.DataFrame(
        {"policy": escaped(name), **{shown.label: _with_interval(shown, of) for shown in columns}}
        for name, of in sides.items()
    )


def differences_table(
    sides: Mapping[str, ScenarioSummaries],
    metrics: Sequence[ShownMetric],
    unknown: Collection[str] = (),
) -> pd.DataFrame:
    """Return a row per policy but the first: its differences from it, as text with verdicts.

    Those of the ``unknown`` policies could only come from a prefix cache that cannot hit.
    """
    (_, first), *others = sides.items()
    columns = _in_one_unit(metrics, sides)
    rows = [
        {
            "policy": escaped(name),
            **{
                shown.label: CANNOT_TELL if name in unknown else _difference(shown, first, of)
                for shown in columns
            },
        }
        for name, of in others
    ]
    return pd.DataFrame(rows, columns=["policy", *(shown.label for shown in columns)])


def comparison_frame(
    sides: Mapping[str, ScenarioSummaries], metrics: Sequence[ShownMetric]
) -> pd.DataFrame:
    """Return both tables as numbers, a row per policy and metric."""
    first = next(iter(sides.values()))
    return pd.DataFrame(
        {
            "policy": name,
            "metric": shown.label,
            "value": shown.value(of.summary),
            **_bounds("interval", shown.interval(of.replications)),
            **_bounds("difference", shown.difference(first.replications, of.replications)),
        }
        for name, of in sides.items()
        for shown in metrics
    )


def request_gains(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Return requests that finished in both runs, by arrival.

    Columns: ``request_id``, ``scheduled_s``, E2E latency ``a`` and ``b``, and ``difference``
    (b - a), in seconds.
    """
    differences = request_differences([a], [b]).drop(columns="seeds")
    arrivals = a[["request_id", "scheduled_s"]]
    return arrivals.merge(differences, on="request_id").sort_values(
        "scheduled_s", ignore_index=True
    )


def largest_gains_and_losses(
    gains: pd.DataFrame, most: int = 5
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the requests with the largest gains, and those with the largest losses."""
    gained = gains[gains["difference"] < 0].nsmallest(most, "difference")
    lost = gains[gains["difference"] > 0].nlargest(most, "difference")
    return gained, lost


def gains_sentence(gains: pd.DataFrame, a: str, b: str) -> str:
    """Return how many requests get faster and slower from ``a`` to ``b``, and the mean change."""
    if gains.empty:
        return "No request finished under both policies."
    difference = gains["difference"]
    gain, lose = int((difference < 0).sum()), int((difference > 0).sum())
    mean_s = float(difference.mean())
    unit, factor = duration_unit([mean_s])
    mean = signed(factor * mean_s, factor * mean_s)
    counts = {"gain": gain, "lose": lose, "requests": len(gains)}
    return page_text("compare.gains", a=a, b=b, mean=mean, unit=unit, **counts)


def timeline_links(scenario: ScenarioFile, requests: Sequence[str]) -> list[str] | None:
    """Return links to the Timeline page of that scenario, one per request; None where a link cannot
    hold the scenario."""
    if scenario.workload.source not in (GENERATED, SAMPLE):
        return None
    try:
        return [f"timeline?{query_of(scenario, timeline_request=name)}" for name in requests]
    except ServetwinError:
        return None


def _in_one_unit(
    metrics: Sequence[ShownMetric], sides: Mapping[str, ScenarioSummaries]
) -> list[ShownMetric]:
    """Return the metrics, each in one unit for all sides."""
    summaries = [of.summary for of in sides.values()]
    return [shown.beside(summaries) for shown in metrics]


def _with_interval(shown: ShownMetric, of: ScenarioSummaries) -> str:
    value, interval = shown.value(of.summary), shown.interval(of.replications)
    if value is None:
        return "-"
    bounds = ends(interval.low, interval.high, three_digits) if interval else None
    return f"{three_digits(value)} [{', '.join(bounds)}]" if bounds else three_digits(value)


def _difference(shown: ShownMetric, first: ScenarioSummaries, of: ScenarioSummaries) -> str:
    base, value = shown.value(first.summary), shown.value(of.summary)
    if base is None or value is None:
        return "-"
    difference = shown.difference(first.replications, of.replications)
    if difference is None:
        return signed(value - base, base)
    bounds = ends(difference.low, difference.high, lambda bound: signed(bound, base))
    between = f" [{', '.join(bounds)}]" if bounds else ""
    return f"{signed(value - base, base)}{between} {_judged(shown, difference, bounds is not None)}"


def _judged(shown: ShownMetric, found: Interval, has_width: bool) -> str:
    if not excludes_zero(found):
        return "may be none" if has_width else "none"
    return "better" if (found.low > 0) == (shown.better == "more") else "worse"


def _bounds(name: str, found: Interval | None) -> dict[str, Any]:
    low, high = (found.low, found.high) if found else (None, None)
    return {f"{name}_p5": low, f"{name}_p95": high}
