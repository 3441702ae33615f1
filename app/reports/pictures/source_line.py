"""What a picture rests on, in a sentence: what was simulated or measured, on what, which load."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from servetwin.app.reports.origins import origin_shares
from servetwin.sim.records.run import Run
from servetwin.workloads.generators.generate import SOURCE as GENERATED
from servetwin.workloads.version import own_version

_LEAST_SHARE = 0.005
_VERBS = {"simulation": "Simulated", "loadtest": "Measured"}


def source_line(runs: Sequence[Run]) -> str:
    """Return the servers, what their step times rest on, the requests, the seeds and the version.

    What several runs have in common stands once. No path of a machine is in it.
    """
    seeds = _distinct(f"seed {run.scenario['seed']}" for run in runs if "seed" in run.scenario)
    parts = [
        f"{' and '.join(_distinct(_VERBS[run.kind] for run in runs))}: {', '.join(_servers(runs))}",
        ", ".join(
            _distinct(_requests(len(run.requests), run.scenario.get("trace")) for run in runs)
        ),
        ", ".join(seeds),
        made_by(*(run.meta.get("servetwin") for run in runs)),
    ]
    return "; ".join(filter(None, parts))


def grid_line(servers: Mapping[str, Any], requests: int | None, trace: str, seed: int) -> str:
    """Return the same of many simulations on the servers of a record; None are all requests."""
    load = _requests(requests, trace)
    return f"Simulated: {server_name(servers)}; {load} each; seed {seed}; {made_by()}"


def made_by(*versions: str | None) -> str:
    """Return the program and its versions; where none is given, the version that runs now."""
    return f"Servetwin {', '.join(_distinct(v for v in versions if v)) or own_version()}"


def server_name(scenario: Mapping[str, Any]) -> str:
    """Return the model with its device and techniques, the profiles, or whose endpoint it was."""
    if model := scenario.get("model"):
        device = [f"on {scenario['hardware']}"] if scenario.get("hardware") else []
        toggles = ((word, scenario.get(key)) for word, key in _TOGGLES.items())
        changes = [f"{word} {', '.join(names)}" for word, names in toggles if names]
        return " ".join([_name(model), *device, *changes])
    if "endpoint" in scenario:
        return f"{scenario['endpoint'].get('model') or 'a model'} at an endpoint"
    profiles = scenario.get("profile", "an unnamed profile")
    return " and ".join(map(_name, [profiles] if isinstance(profiles, str) else profiles))


_TOGGLES = {"with": "techniques", "without": "without"}


def _servers(runs: Sequence[Run]) -> Iterator[str]:
    """Yield each server once, with what its step times rest on: of each run, where they differ."""
    for name in _distinct(server_name(run.scenario) for run in runs):
        rests = _distinct(_rests(run) for run in runs if server_name(run.scenario) == name)
        said = " and ".join(filter(None, rests))
        yield f"{name} (step times {said})" if said else name


def _rests(run: Run) -> str:
    shares = origin_shares(run.extra["provenance"]) if "provenance" in run.extra else []
    return ", ".join(f"{one.name} {one.share:.0%}" for one in shares if one.share >= _LEAST_SHARE)


def _requests(count: int | None, trace: object) -> str:
    counted = "all" if count is None else f"{count:,}"
    if trace == GENERATED:
        return f"{counted} generated requests"
    return f"{counted} requests of {_name(trace or 'an unnamed trace')}"


def _name(text: object) -> str:
    """Return a shipped name as it is, and of a path the file alone."""
    return PurePath(str(text)).name


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
