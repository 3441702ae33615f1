"""Policies compared on the same requests: metrics, paired differences, gains of single requests."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from servetwin.app.dashboard.formatting import escaped, page_text, signed
from servetwin.app.dashboard.metrics_row import ScenarioSummaries, ShownMetric, excludes_zero
from servetwin.app.dashboard.scenario.allowed_choices import require_all_offered
from servetwin.app.dashboard.scenario.controls import PAGE_CONTROLS
from servetwin.app.dashboard.scenario.url_state import query_of
from servetwin.app.dashboard.scenario_words import CANNOT_TELL
from servetwin.app.dashboard.widgets import control, problems_shown
from servetwin.app.scenario.files.scenario_file import GENERATED, SAMPLE, ScenarioFile
from servetwin.app.words import ends, short
from servetwin.policies.presets import PRESETS
from servetwin.sim.experiments.paired_comparison import request_differences
from servetwin.sim.experiments.predict import Interval
from servetwin.sim.records.metrics import duration_unit
from servetwin.workloads.errors import PolicyError, ServetwinError

# The control that names the policies, in the session and in the link.
POLICIES_KEY = "compared"
OWN_LABEL = "this scenario"
_MOST_POLICIES = 4
# The labels to choose from; any other label of ``replay compare`` can be typed.
LABELS = (*PAGE_CONTROLS["compared"].choices, *PRESETS)


def chosen(scenario: ScenarioFile, place: Any = st) -> dict[str, ScenarioFile]:
    """Draw the choice of other policies, for all pages; return the scenario under each that is
    valid, and show what is wrong with the others."""
    options = {"options": LABELS, "max_selections": _MOST_POLICIES}
    files = {}
    for label in control(POLICIES_KEY, [], place, **options):
        with problems_shown():
            files[label] = scenario_under(scenario, label)
    return files


def show(labels: Sequence[str]) -> None:
    """Choose policies."""
    st.session_state[POLICIES_KEY] = list(labels)


def scenario_under(scenario: ScenarioFile, text: str) -> ScenarioFile:
    """Return the scenario under policies as for ``replay compare``, joined by ``+`` or spaces.

    Raises ``ServetwinError`` where one is unknown, or not offered here.
    """
    parts = text.replace("+", " ").split()
    if not parts:
        return scenario
    try:
        changed = scenario.with_policies("+".join(parts))
    except ServetwinError as error:
        raise PolicyError(str(error).removeprefix("replay compare: ")) from None
    require_all_offered(changed)
    return changed


def figures_table(
    sides: Mapping[str, ScenarioSummaries],
    metrics: Sequence[ShownMetric],
    unknown: Collection[str] = (),
) -> pd.DataFrame:
    """Return a row per policy, as text: each metric with its 90 % interval, and, but for the first,
    its difference from the first with a verdict.

    Those of the ``unknown`` policies could only come from a prefix cache that cannot hit.
    """
    summaries = [of.summary for of in sides.values()]
    columns = [shown.beside(summaries) for shown in metrics]
    (_, first), *_ = sides.items()

    def cell(name: str, shown: ShownMetric, of: ScenarioSummaries) -> str:
        value = _with_interval(shown, of)
        if of is first or value == "-":
            return value
        difference = CANNOT_TELL if name in unknown else _difference(shown, first, of)
        return f"{value}; {difference}"

    return pd.DataFrame(
        {"policy": escaped(name), **{shown.label: cell(name, shown, of) for shown in columns}}
        for name, of in sides.items()
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
    return page_text("explore.gains", a=a, b=b, mean=mean, unit=unit, **counts)


def links_to_why(scenario: ScenarioFile, requests: Sequence[str]) -> list[str] | None:
    """Return links to the page Why of that scenario, one per request; None where a link cannot
    hold the scenario."""
    if scenario.workload.source not in (GENERATED, SAMPLE):
        return None
    try:
        return [f"why?{query_of(scenario, why_request=name)}" for name in requests]
    except ServetwinError:
        return None


def _with_interval(shown: ShownMetric, of: ScenarioSummaries) -> str:
    value, interval = shown.value(of.summary), shown.interval(of.replications)
    if value is None:
        return "-"
    bounds = ends(interval.low, interval.high, short) if interval else None
    return f"{short(value)} [{', '.join(bounds)}]" if bounds else short(value)


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
    return "better" if (found.low > 0) == shown.more_is_better else "worse"
