"""Whether two runs had the same load: requests, rate and settings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from servetwin.sim.records.run import Run
from servetwin.workloads.errors import LoadTestError

_SETTINGS = {
    "model": ("endpoint", "model"),
    "API": ("endpoint", "api"),
    "form of prompts": ("endpoint", "prompt"),
    "forced length": ("endpoint", "force_length"),
    "sampling": ("endpoint", "options", "sampling"),
    "extra body": ("endpoint", "options", "extra"),
    "whole answers": ("endpoint", "options", "whole"),
    "LoRA modules": ("endpoint", "options", "lora"),
    "images": ("endpoint", "options", "images"),
    "rate": ("rate_per_s",),
    "closed loop": ("closed_loop",),
    "users": ("options", "concurrency"),
    "duration": ("options", "duration_s"),
    "warm-up": ("options", "warm_up_s"),
    "cancellation": ("options", "cancellation"),
    "retries": ("options", "retries"),
}
"""What the scenarios of two load tests must agree in, and where it stands there."""


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
    for said in _differences(name, scenario, other, theirs):
        if asked_alike or said.place[0] != "endpoint":
            raise LoadTestError(f"{said.text}; give the same load and options to both")


def endpoint_differences(name: str, run: Run, other: str, theirs: Run) -> list[str]:
    """Return what two load tests asked of their endpoints otherwise: model, API, body."""
    found = _differences(name, run.scenario, other, theirs.scenario)
    return [said.text for said in found if said.place[0] == "endpoint"]


class _Difference(NamedTuple):
    """A setting that differs: where it stands, and a text that says so."""

    place: tuple[str, ...]
    text: str


def _differences(
    name: str, scenario: Mapping[str, Any], other: str, theirs: Mapping[str, Any]
) -> Iterator[_Difference]:
    for setting, place in _SETTINGS.items():
        ours, yours = _at(scenario, place), _at(theirs, place)
        if place[:2] == ("endpoint", "options"):  # a run of an older version has none
            ours, yours = ours or None, yours or None
        if ours != yours:
            text = f"{other}: {setting} {_shown(yours)}, but {_shown(ours)} in {name}"
            yield _Difference(place, text)


def _at(scenario: Mapping[str, Any], place: Sequence[str]) -> Any:
    value: Any = scenario
    for key in place:
        value = (value or {}).get(key)
    return value


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def require_same_load(
    name: str, run: Run, other: str, theirs: Run, *, asked_alike: bool = True
) -> None:
    """Raise ``LoadTestError`` where two runs differ in their requests, rate or settings.

    Unless they must be ``asked_alike``, settings of the endpoint may differ. Of a run that was
    broken off only the settings are compared.
    """
    if run.kind != theirs.kind:
        raise LoadTestError(
            f"{name} and {other}: a simulation and a load test; verify, and loadtest --against, "
            "judge a prediction"
        )
    if run.kind == "loadtest":
        require_same_settings(name, run.scenario, other, theirs.scenario, asked_alike=asked_alike)
    if broke_off(run) or broke_off(theirs):
        return
    times = [
        one.requests.set_index("request_id")["scheduled_s"].sort_index() for one in (run, theirs)
    ]
    same = times[0].index.equals(times[1].index)
    if same and not run.scenario.get("closed_loop"):  # there, the times are results
        same = bool((abs(times[0] - times[1]) < 1e-6).all())
    if not same:
        raise LoadTestError(
            f"{other}: not the requests of {name}, by their ids and arrivals; give the same trace "
            "and options to both"
        )


def broke_off(run: Run) -> bool:
    """Return whether a load test ended before all was sent."""
    delivered = run.extra.get("delivered", {})
    return bool(delivered.get("interrupted") or delivered.get("stopped"))
