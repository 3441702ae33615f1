"""Whether two runs, or a run and a trace, are the same load: requests, rate and settings."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from servetwin.app.words import asset_table
from servetwin.loadtest.report.load_notes import why_cut_off
from servetwin.sim.records.run import Run
from servetwin.workloads.errors import LoadTestError
from servetwin.workloads.trace import Trace

# What the scenarios of two load tests must agree in, and where it stands there.
_SETTINGS: dict[str, str] = asset_table("verdicts.yaml")["settings"]


def require_same_settings(
    name: str,
    scenario: Mapping[str, Any],
    other: str,
    theirs: Mapping[str, Any],
    *,
    asked_alike: bool = True,
) -> None:
    """Raise ``LoadTestError`` naming the first setting that differs between two load tests.

    Unless they must be ``asked_alike``, settings of the endpoint may differ.
    """
    for is_of_endpoint, text in _differences(name, scenario, other, theirs):
        if asked_alike or not is_of_endpoint:
            raise LoadTestError(f"{text}; give the same load and options to both")


def endpoint_differences(name: str, run: Run, other: str, theirs: Run) -> list[str]:
    """Return what two load tests asked of their endpoints otherwise: model, API, body."""
    differences = _differences(name, run.scenario, other, theirs.scenario)
    return [text for is_of_endpoint, text in differences if is_of_endpoint]


def _differences(
    name: str, scenario: Mapping[str, Any], other: str, theirs: Mapping[str, Any]
) -> Iterator[tuple[bool, str]]:
    """Yield for each setting that differs whether it is of the endpoint, and a text on it."""
    for setting, place in _SETTINGS.items():
        ours, yours = _at(scenario, place), _at(theirs, place)
        if place.startswith("endpoint.options"):  # a run of an older version has none
            ours, yours = ours or None, yours or None
        if ours != yours:
            text = f"{other}: {setting} {_shown(yours)}, but {_shown(ours)} in {name}"
            yield place.startswith("endpoint"), text


# The column of runs in which requests wait for others, so that their arrivals are results.
TASK = "task"


def _at(scenario: Mapping[str, Any], place: str) -> Any:
    value: Any = scenario
    for key in place.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def require_same_load(
    name: str, run: Run, other: str, theirs: Run, *, asked_alike: bool = True
) -> Run:
    """Return the other run, with the ids of the first where one of them is a simulation.

    Raises ``LoadTestError`` where their requests, rate or settings differ. Unless they must be
    ``asked_alike``, settings of the endpoint may differ. Of a run that was broken off only the
    settings are compared.
    """
    if (lanes := run.scenario.get("lanes")) and lanes == theirs.scenario.get("lanes"):
        return theirs  # how many requests they send is a result
    if run.kind != theirs.kind:
        return _matched(name, run, other, theirs)
    if run.kind == "loadtest":
        require_same_settings(name, run.scenario, other, theirs.scenario, asked_alike=asked_alike)
    times = not (run.scenario.get("closed_loop") or TASK in run.requests)
    if not (broke_off(run) or broke_off(theirs) or same_requests(run, theirs, times=times)):
        raise LoadTestError(
            f"{other}: not the requests of {name}, by their ids and arrivals; give the same trace "
            "and options to both"
        )
    return theirs


def _matched(name: str, run: Run, other: str, theirs: Run) -> Run:
    """Return the other run with the ids of the first; one is a simulation, one was measured.

    Requests are matched by their ids, or by their order where those are of another tool. What the
    measured server failed to answer was not simulated.
    """
    first, second = _simulated_rows(run), _simulated_rows(theirs)
    if len(first) != len(second):
        raise LoadTestError(
            f"{other}: {len(second)} requests, but {len(first)} in {name}; replay the trace of the "
            "measured run (trace.jsonl in its folder), all of it"
        )
    if set(first["request_id"]) == set(second["request_id"]):
        second = second.set_index("request_id").loc[first["request_id"]].reset_index()
    columns = ["prompt_tokens", *(["scheduled_s"] if TASK not in run.requests else [])]
    equal = np.isclose(first[columns], second[columns], rtol=1e-9, atol=1e-6)
    if not equal.all():
        row = int(np.argmin(equal.all(axis=1)))
        what = "arrival" if equal[row, 0] else "prompt length"
        raise LoadTestError(
            f"{other}: request {second['request_id'][row]!r} has another {what} than "
            f"{first['request_id'][row]!r} of {name}; replay the trace of the measured run"
        )
    ids = dict(zip(second["request_id"], first["request_id"], strict=True))
    renamed = theirs.requests["request_id"].map(lambda one: ids.get(one, one))
    return replace(theirs, requests=theirs.requests.assign(request_id=renamed))


def _simulated_rows(run: Run) -> pd.DataFrame:
    rows = run.requests
    if run.kind == "loadtest":
        rows = rows[rows["status"] == "finished"]
    return rows.sort_values("scheduled_s", kind="stable").reset_index(drop=True)


def same_requests(run: Run, other: Run, *, times: bool = True) -> bool:
    """Return whether both had the same requests, at the same ``times`` unless these are results."""
    ours, theirs = (
        one.requests.set_index("request_id")["scheduled_s"].sort_index() for one in (run, other)
    )
    same_ids = ours.index.equals(theirs.index)
    return same_ids and (not times or bool(np.allclose(ours, theirs, rtol=1e-9, atol=1e-6)))


def check_same_load(
    predicted: Run,
    trace: Trace,
    *,
    closed_loop: bool = False,
    option: str = "--against",
    other: str = "the prediction",
) -> None:
    """Check that a prediction, or an earlier run, is for the load of this trace.

    Raises ``LoadTestError`` naming the first request whose arrival or prompt length differs. A
    measured run counts prompt tokens in its own way, so only its arrivals are compared. In a closed
    loop the arrivals of followers are results, and a prediction for an open loop is refused.
    """
    if closed_loop and predicted.scenario.get("cluster", {}).get("closed_loop") is False:
        raise LoadTestError(f"{option}: {other} is for an open loop; predict without --open-loop")
    followers = {r.request_id for r in trace if closed_loop and r.parent_ids}
    columns = ["scheduled_s", *(["prompt_tokens"] if predicted.kind == "simulation" else [])]
    ours = pd.DataFrame(
        [(r.request_id, r.arrival_s, r.prompt_tokens) for r in trace],
        columns=["request_id", "scheduled_s", "prompt_tokens"],
    ).set_index("request_id")[columns]
    theirs = predicted.requests.set_index("request_id")[columns]
    if len(theirs) != len(ours):
        raise LoadTestError(
            f"{option}: {other} has {len(theirs)} requests, the trace {len(ours)}; "
            "give the same trace and the same options to both"
        )
    theirs = theirs.reindex(ours.index)
    equal = np.isclose(ours, theirs, rtol=1e-9, atol=1e-6)
    equal[:, 0] |= ours.index.isin(followers) & theirs["scheduled_s"].notna()
    same = equal.all(axis=1)
    if not same.all():
        first = ours.index.to_numpy()[~same][0]
        raise LoadTestError(
            f"{option}: request {first!r} of the trace has another arrival or prompt length in "
            f"{other}; give the same trace and options to both"
        )


def check_same_lanes(predicted: Run, trace: Trace) -> None:
    """Raise ``LoadTestError`` where a prediction is not of these lanes: how many of their requests
    are sent is a result."""
    ours = {"trace": trace.source, "lanes": trace.lanes and asdict(trace.lanes)}
    if {name: predicted.scenario.get(name) for name in ours} != ours:
        raise LoadTestError(
            "--against: the prediction is of another load; give the same trace, --lanes and --seed "
            "to both"
        )


def broke_off(run: Run) -> bool:
    """Return whether a load test ended before all was sent."""
    return why_cut_off(run.extra.get("delivered", {})) is not None
