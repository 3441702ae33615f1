"""The grid of the Policies page: an edited table of policies times rates, and the best of them."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from servetwin.app.dashboard.compare.policy_comparison import scenario_under
from servetwin.app.dashboard.jobs.simulated_items import RATES, parse_rates, require_few, with_rate
from servetwin.app.scenario.files.scenario_file import ScenarioError, ScenarioFile
from servetwin.workloads.errors import ServetwinError

NAME, POLICIES = "name", "policies"
DEFAULT_TABLE = pd.DataFrame(
    {
        NAME: ["static", "continuous", "chunked", "like vLLM"],
        POLICIES: ["static+contiguous", "continuous+paged", "chunked+paged", "vllm-v1"],
    }
)
_SAME = 0.0005
"""Attainments as near as 0.05 percentage points count as equal."""


def named_scenarios(base: ScenarioFile, table: pd.DataFrame) -> dict[str, ScenarioFile]:
    """Return ``base`` under each row, by its name (or else its policies), without empty rows.

    Raises ``ScenarioError`` naming the row, from 1 on, and what is wrong with it.
    """
    files: dict[str, ScenarioFile] = {}
    for number, row in enumerate(table.fillna("").to_dict("records"), start=1):
        text = str(row[POLICIES]).strip()
        name = str(row[NAME]).strip() or text
        if not name:
            continue
        try:
            if name in files:
                raise ScenarioError("another row has this name")
            files[name] = scenario_under(base, text)
            files[name].settled()
        except ServetwinError as error:
            raise ScenarioError(f"row {number} ({name}): {error}") from None
    return files


def policy_points(
    base: ScenarioFile, table: pd.DataFrame, rates: str
) -> tuple[list[dict[str, Any]], list[ScenarioFile]]:
    """Return the points (name, rate and label), row by row with all its rates, and their scenarios.

    Without ``rates`` it is the rate of the scenario. Raises ``ScenarioError``.
    """
    scenarios = named_scenarios(base, table)
    rates_per_s = sorted(parse_rates(rates)) or _own_rate(base)
    require_few(len(scenarios) * len(rates_per_s))
    pairs = list(product(scenarios.items(), rates_per_s))
    points = [
        {NAME: name, "rate": rate, "label": f"{name} at {rate:g} requests/s"}
        for (name, _), rate in pairs
    ]
    return points, [with_rate(file, rate) for (_, file), rate in pairs]


def _own_rate(base: ScenarioFile) -> list[float]:
    if (rate_per_s := base.workload.rate_per_s) is None:
        raise ScenarioError(f"{RATES}: name at least one; the scenario has its trace's own")
    return [rate_per_s]


def best_per_rate(points: pd.DataFrame, share: float) -> list[str]:
    """Return a sentence per rate on the policies that keep the SLO for most requests."""
    defined = points.dropna(subset=["slo_attainment"])
    return [
        _best_line(rate, dict(zip(at[NAME], at["slo_attainment"], strict=True)), share)
        for rate, at in defined.groupby("rate")
    ]


def highest_rates(points: pd.DataFrame, share: float) -> pd.DataFrame:
    """Return, per policy, the highest rate up to which every tried one keeps the SLO."""
    names = dict.fromkeys(points[NAME])
    tops = [_highest(points[points[NAME] == name], share) for name in names]
    return pd.DataFrame({"policies": list(names), "rate, requests/s": tops})


def _best_line(rate: Any, attained: Mapping[str, float], share: float) -> str:
    most = max(attained.values())
    best = [name for name, value in attained.items() if value >= most - _SAME]
    words = f"{_listed(best)} with {100 * most:.1f} %"
    enough = "" if most >= share else f", less than {100 * share:g} %"
    return f"At {rate:g} requests/s: {words}{enough}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _highest(of_one: pd.DataFrame, share: float) -> float | None:
    ordered = of_one.sort_values("rate")
    within = (ordered["slo_attainment"] >= share).cummin()
    return float(ordered.loc[within, "rate"].max()) if within.any() else None
