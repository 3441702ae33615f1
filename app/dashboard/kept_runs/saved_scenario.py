"""Save a simulated scenario as a run folder, and rebuild the scenario of a run folder."""

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from servetwin.app.dashboard.kept_runs.folder import new_child
from servetwin.app.dashboard.scenario.allowed_choices import require_all_offered
from servetwin.app.dashboard.scenario_words import recorded_run
from servetwin.app.dashboard.simulations import SimulatedScenario
from servetwin.app.scenario.files.scenario_file import SAMPLE, ScenarioFile, parse_scenario_dict
from servetwin.app.scenario.options.deployment import Deployment
from servetwin.sim.records.run import RunError, machine_facts
from servetwin.workloads.reading import sample_trace

_MEMORY = "kv_tokens"
# The key of the whole scenario, beside what ``replay --out`` records.
FILE = "scenario_file"


def save_run(root: Path, name: str, outcome: SimulatedScenario) -> Path:
    """Write the run folder that ``replay --out`` would; raises ``RunError`` for a bad name, or a
    full disk."""
    folder = new_child(root, name)
    run = recorded_run(outcome)
    run.scenario[FILE] = outcome.file.model_dump(mode="json", exclude_defaults=True)
    return replace(run, meta=machine_facts()).save(folder)


def rebuilt(
    record: Mapping[str, Any], now: ScenarioFile, uploaded: Collection[str] = ()
) -> tuple[ScenarioFile, str]:
    """Return the scenario of a simulated run, and a note on what of it is not kept.

    A run that the dashboard saved keeps all of it. Any other keeps its server and its policies; its
    trace must be the bundled one or an uploaded one, or the workload stays that of ``now``. Raises
    ``ServetwinError`` where its server is not offered here, or has no controls.
    """
    if FILE in record:
        fields, note = record[FILE], ""
    else:
        fields, note = _from_record(record, now, uploaded)
    file = parse_scenario_dict(fields, "scenario.yaml")
    require_all_offered(file)
    return file, note


def _from_record(
    record: Mapping[str, Any], now: ScenarioFile, uploaded: Collection[str]
) -> tuple[dict[str, Any], str]:
    if "policies" not in record:
        if "endpoint" in record:
            raise RunError("a load test does not know the policies of its server")
        raise RunError("another version made it, which did not keep the policies")
    deployment = _deployment(record)
    preset = record.get("eager_preset")
    defaults = ScenarioFile(deployment=deployment, preset=preset).settled()
    policies = _different(record["policies"], defaults.policies.as_dict())
    if (
        deployment.model and _MEMORY in record["policies"]
    ):  # it would follow from the other settings
        policies[_MEMORY] = record["policies"][_MEMORY]
    workload, note = _workload(record, now, uploaded)
    return {
        **now.model_dump(),
        "workload": workload,
        "deployment": deployment,
        "preset": preset,
        "policies": policies,
        "cluster": _different(record.get("cluster", {}), defaults.cluster.as_dict()),
        "seed": record.get("seed", 0),
    }, note


def _deployment(record: Mapping[str, Any]) -> Deployment:
    """Return the deployment, of names that are offered here: no path of a run folder is read."""
    names = {field.name for field in fields(Deployment)}
    named = {name: value for name, value in record.items() if name in names}
    file = parse_scenario_dict({"deployment": named}, "scenario.yaml")
    require_all_offered(file)
    return file.deployment


def _workload(
    record: Mapping[str, Any], now: ScenarioFile, uploaded: Collection[str]
) -> tuple[dict[str, Any], str]:
    """Return its trace where it is here; a run does not keep how much of it, or how fast."""
    trace, workload = str(record.get("trace", "")), now.workload.model_dump()
    plain, notes = trace.rpartition("/")[2], tuple(record.get("notes", ()))
    is_sample = notes[:1] == sample_trace().notes[:1]
    if not is_sample and plain not in uploaded:
        return workload, (
            f"a run folder does not keep its trace ({trace}): the workload stays as it was here"
        )
    return {**workload, "source": SAMPLE if is_sample else plain, "rate_per_s": None}, (
        "the trace runs at its own rate; whether it was scaled or cut is not kept"
    )


def _different(settings: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in base or value != base[key]}
