"""What a run is and what its figures rest on, in words."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from servetwin.app.words import asset_table, origin_shares
from servetwin.sim.records.run import Run, RunKind
from servetwin.workloads.generators.generate import SOURCE as GENERATED
from servetwin.workloads.program.package import own_version
from servetwin.workloads.rows import counted

# Share of simulated time outside the range of its profile that is worth a warning.
WARN_ABOVE = 0.001


def provenance_line(provenance: Mapping[str, Any]) -> str:
    """Return ``rests on   measured here 93.1 %, extrapolated from it 6.9 % of simulated time``."""
    shares = shares_in_words(provenance)
    return f"rests on   {shares} of simulated time" if shares else "no step was run"


def shares_in_words(provenance: Mapping[str, Any]) -> str:
    """Return ``measured here 93.1 %, extrapolated from it 6.9 %``; empty where no step was run."""
    shares = origin_shares(provenance)
    return ", ".join(f"{one.name} {_percent(one.share)}" for one in shares)


def outside_warning(provenance: Mapping[str, Any], widened: bool) -> str | None:
    """Which range was left and how far, where that matters; ``widened`` are the intervals."""
    share = provenance["shares"].get("extrapolated", 0.0)
    if share <= WARN_ABOVE:
        return None
    profiles = dict.fromkeys(excess["profile"] for excess in provenance["outside"])
    what = "; also ".join(_excess(excess) for excess in provenance["outside"])
    end = "intervals are widened there" if widened else "the error there is unknown"
    several = "s" if len(profiles) > 1 else ""
    return (
        f"warning: {_percent(share)} of the simulated time lies outside the range of "
        f"profile{several} {', '.join(profiles)} ({what}): {end}"
    )


def _excess(excess: Mapping[str, Any]) -> str:
    feature = asset_table("words.yaml")["features"][excess["feature"]]
    reached = feature.format(f"{excess['value']:,.0f}")
    return f"{reached}; known up to {excess['measured']:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def measured_noun(scenario: Mapping[str, Any]) -> str:
    """Return what a measured run is: ``load test``, or ``recorded run`` of another tool."""
    return "recorded run" if "recorded_by" in scenario else "load test"


def trial_words(measured: Sequence[Run]) -> str:
    """Return what was sent, and how often: ``240 requests at 6.81/s, 2 load tests``."""
    first = measured[0]
    rate_per_s = first.scenario.get("rate_per_s")
    return load_words(len(first.requests), rate_per_s, len(measured), first.scenario)


def load_words(
    requests: int, rate_per_s: float | None, times: int, scenario: Mapping[str, Any]
) -> str:
    """Return a load and how often it was measured, as ``trial_words``."""
    rate = "" if rate_per_s is None else f" at {rate_per_s:.2f}/s"
    return f"{counted(requests, 'request')}{rate}, {counted(times, measured_noun(scenario))}"


def recorded_words(run: Run) -> str:
    """Return ``recorded by stamps of the engine: 300 requests of measured.jsonl``."""
    scenario = run.scenario
    requests = f"{counted(len(run.requests), 'request')} of {scenario.get('trace')}"
    return f"recorded by {scenario.get('recorded_by', 'a load test')}: {requests}"


_LEAST_SHARE = 0.005
_VERBS = {"simulation": "Simulated", "loadtest": "Measured"}


def source_line(runs: Sequence[Run]) -> str:
    """Return the servers, what their step times rest on, the requests, the seeds and the version.

    What several runs have in common stands once. No path of a machine is in it.
    """
    seeds = _distinct(f"seed {run.scenario['seed']}" for run in runs if "seed" in run.scenario)
    verbs = _distinct(_VERBS[run.kind] for run in runs)
    loads = _distinct(_requests(len(run.requests), run.scenario.get("trace")) for run in runs)
    parts = [
        f"{' and '.join(verbs)}: {', '.join(_servers(runs))}",
        ", ".join(loads),
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
        device = [f"on {scenario['gpu']}"] if scenario.get("gpu") else []
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
        origins = " and ".join(filter(None, rests))
        yield f"{name} (step times {origins})" if origins else name


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


def what_ran_short(kind: RunKind, scenario: Mapping[str, Any]) -> str:
    """Return ``simulation of continuous+paged``, ``load test of MODEL``, ``recorded by TOOL``."""
    if tool := scenario.get("recorded_by"):
        return f"recorded by {tool}"
    if kind == "loadtest":
        return f"load test of {scenario.get('endpoint', {}).get('model', 'an endpoint')}"
    policies = scenario.get("policies", {})
    names = [str(policies[key]) for key in ("batching", "kv") if key in policies]
    prefix = ["prefix"] if policies.get("prefix_cache") else []
    return f"simulation of {'+'.join([*names, *prefix]) or 'a server'}"


def what_ran(run: Run) -> str:
    """Return the server and the requests of a run, in words."""
    if "recorded_by" in run.scenario:
        return recorded_words(run)
    scenario, ran = run.scenario, what_ran_short(run.kind, run.scenario)
    trace = _requests(len(run.requests), scenario.get("trace"))
    if run.kind == "loadtest":
        return f"{ran} at {scenario.get('endpoint', {}).get('base_url')}: {trace}"
    return f"{ran} on {server_name(scenario)}: {trace}; seed {scenario.get('seed', 0)}"


_PART = r"""[^\s/\\:;,'"()<>|]+"""
# A file in a folder, within a sentence. Paths of HTTP interfaces are no files.
_ABSOLUTE = re.compile(
    rf"(?:file://|(?<![\w.:/\\\]~-]))(?:~|[A-Za-z]:)?[/\\](?!v\d+/|api/)(?:{_PART}[/\\]+)+({_PART})"
)
# A text that is one file, perhaps with blanks in its path.
_WHOLE = re.compile(r"""(?:~|[A-Za-z]:)?[/\\](?!v\d+/|api/)[^:;,'"()<>|\n]*\.[A-Za-z]\w*""")


def without_paths(value: Any) -> Any:
    """Return a text with absolute paths cut to their last part; so in lists and mappings too."""
    if isinstance(value, str):
        is_file = _WHOLE.fullmatch(value)
        return re.split(r"[/\\]", value)[-1] if is_file else _ABSOLUTE.sub(r"\1", value)
    if isinstance(value, Mapping):
        return {without_paths(key): without_paths(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(one) for one in value]
    return value


def run_without_paths(run: Run) -> Run:
    """Return a run to be shown to others, who have another machine."""
    shown = {part: without_paths(getattr(run, part)) for part in ("scenario", "meta", "extra")}
    return replace(run, **shown)
