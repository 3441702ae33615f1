"""``servetwin replay compare A B``: differences with intervals, and the requests that gain most."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pandas as pd
import typer

from servetwin.app.reports.progress import saved_if_asked
from servetwin.app.reports.run_words import outside_warning, provenance_line
from servetwin.app.reports.table import table_lines
from servetwin.app.reports.tables import server_lines
from servetwin.app.scenario.scenarios import scenario_record
from servetwin.app.words import ends, number
from servetwin.sim.experiments.paired_comparison import MetricDifference, RunComparison, compare
from servetwin.sim.experiments.predict import runs_over_seeds
from servetwin.sim.experiments.scenario import Scenario
from servetwin.sim.records.metrics import duration_unit
from servetwin.sim.records.run import Run, machine_facts
from servetwin.sim.records.run_claim import RunClaim
from servetwin.workloads.trace import Trace

REPLICATIONS = 10
_SHOWN = 5
_PARTS = ("a", "b", "difference", "low", "high", "seeds")


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two that are compared; ``letter`` is a or b."""

    letter: str
    name: str
    scenario: Scenario
    runs: Sequence[Run]

    @property
    def provenance(self) -> dict[str, Any]:
        """What the step times of its first run rest on."""
        provenance: dict[str, Any] = self.runs[0].extra["provenance"]
        return provenance


def print_comparison(
    trace: Trace,
    named: Sequence[tuple[str, Scenario]],
    servers: Mapping[str, object],
    seed: int,
    replications: int | None,
    claim: RunClaim | None,
    as_json: bool,
) -> list[Run]:
    """Simulate both over the same seeds, print how B differs from A, and return a run of each.

    ``named`` are the names and scenarios of A and B; ``servers`` is what the scenario says of them.
    """
    scenarios = [scenario for _, scenario in named]
    if replications is None:  # where nothing is random, all other seeds would do the same
        replications = 1 if all(one.is_repeatable() for one in scenarios) else REPLICATIONS
    seeds = max(1, replications)
    runs = [runs_over_seeds(trace, one, seed=seed, replications=seeds) for one in scenarios]
    sides = [
        _Side(letter, name, scenario, its_runs)
        for letter, (name, scenario), its_runs in zip("ab", named, runs, strict=True)
    ]
    comparison = compare(runs[0], runs[1])
    out = claim.begin() if claim else None
    with ExitStack() as saved:
        for side in sides:
            first = side.runs[0]
            first.scenario = scenario_record(trace, side.scenario, servers, seed)
            first.meta = machine_facts()
            saved.enter_context(saved_if_asked(first, out and out / side.letter))
        for side in sides:
            if warning := outside_warning(side.provenance, widened=seeds > 1):
                typer.echo(f"{side.letter.upper()}: {warning}", err=True)
        if as_json:
            typer.echo(json.dumps(_as_dict(comparison, sides)))
        else:
            typer.echo("\n".join(_report(comparison, sides, servers)))
    return [side.runs[0] for side in sides]


def _report(
    comparison: RunComparison, sides: Sequence[_Side], servers: Mapping[str, object]
) -> list[str]:
    lines = server_lines([side.scenario for side in sides], servers)
    lines += [f"{side.letter.upper()} = {side.name}: {side.scenario.name}" for side in sides]
    same, seeds = "same load and noise on both sides", len(sides[0].runs)
    lines.append(
        f"one seed, {same}: no intervals"
        if seeds == 1
        else f"{seeds} seeds, {same} (common random numbers)"
    )
    heads = ["", "A", "B", "B - A", "95 % interval"]
    lines += ["", *table_lines(heads, map(_metric_row, comparison.metrics), "<>>><"), ""]
    lines += [f"{side.letter.upper()} {provenance_line(side.provenance)}" for side in sides]
    if all(side.scenario.is_repeatable() for side in sides):
        lines.append("nothing is random here: other seeds give the same figures")
    for title, frame in (("gained", comparison.gained), ("lost", comparison.lost)):
        unit, factor = duration_unit([*frame["a"], *frame["b"]])
        head = f"requests that {title} most (E2E latency, {unit}):"
        lines += ["", head, *_requests(frame, factor)]
    return lines


def _metric_row(metric: MetricDifference) -> list[str]:
    is_latency = "_s." in metric.metric
    unit, factor = duration_unit([metric.a, metric.b]) if is_latency else ("/s", 1.0)
    label = metric.metric.replace("_s.", " ").replace("_throughput", "")
    label = label.replace("_tokens_per_s", " tok").replace("_per_s", "")
    figures = (number(value, factor) for value in (metric.a, metric.b, metric.difference))
    interval = ""
    if metric.low is not None and metric.high is not None:
        interval = " to ".join(ends(metric.low, metric.high, lambda end: number(end, factor)) or ())
        interval += "  (unsure)" if interval and not metric.sure else ""
    return [f"{label} {unit}", *figures, interval]


def _requests(frame: pd.DataFrame, factor: float) -> list[str]:
    if frame.empty:
        return ["  none"]
    rows = frame.head(_SHOWN).itertuples(index=False)
    return [
        f"  {str(row.request_id)[-40:]:<42}{number(row.a, factor):>10} -> "
        f"{number(row.b, factor):>10}  ({number(row.difference, factor)})"
        for row in rows
    ]


def _as_dict(comparison: RunComparison, sides: Sequence[_Side]) -> dict[str, Any]:
    both = {
        side.letter: {
            "name": side.name,
            "policies": side.scenario.policies.as_dict(),
            "cluster": side.scenario.cluster.as_dict(),
            "provenance": side.provenance,
        }
        for side in sides
    }
    metrics = {m.metric: {part: getattr(m, part) for part in _PARTS} for m in comparison.metrics}
    requests = {name: getattr(comparison, name).to_dict("records") for name in ("gained", "lost")}
    return {**both, "metrics": metrics, **requests}
