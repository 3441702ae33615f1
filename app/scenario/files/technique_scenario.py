"""A scenario file for ``servetwin techniques``: a server made of data sheets, and its load."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from servetwin.app.scenario.files.scenario_file import parse_scenario_dict
from servetwin.app.scenario.servers import ToggledServer
from servetwin.app.scenario.settings import with_settings
from servetwin.sim.step_times.roofline.efficiency import DEFAULT
from servetwin.sim.techniques.registry import Toggles
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import PolicyError, require_name
from servetwin.workloads.files import document
from servetwin.workloads.yaml_text import YamlError, load_yaml

_DEFAULT = {
    "model": "llama-2-7b",
    "gpu": "a100-80gb",
    "efficiency": f"compute={DEFAULT.compute}",  # of an engine, without the costs of a server
}
_KEYS = ("deployment", "policies", "workload")


class _Loaded(BaseModel):
    """The section of the load, whose keys are named with it."""

    workload: Experiment


class TechniqueScenario(NamedTuple):
    """What techniques are tried on."""

    plain: Setup
    """The server under the policies of the file."""
    toggles: Toggles
    """Techniques that are on and off on both sides of every comparison."""
    experiment: Experiment
    """The load of the file, or the default one."""
    has_workload: bool
    """Whether the file says what the load is."""

    @property
    def setup(self) -> Setup:
        """Return the server with its techniques."""
        return self.toggles.over(self.plain)

    def base_of(self, technique: Technique) -> Setup:
        """Return the server that a technique is tried on, where it is neither on nor off.

        Raises ``PolicyError`` where one that is on excludes it.
        """
        return self.toggles.beside(technique).over(self.plain)


def read_technique_scenario(path: Path | None) -> TechniqueScenario:
    """Read the scenario of a YAML file; without one, Llama-2-7B on an A100.

    Keys: deployment, whose techniques are on both sides of every comparison, policies, workload.
    Techniques come last, over the policies. Raises ``ServetwinError`` that names the file, the key
    and what would be right.
    """
    if path is None:
        return _scenario({}, "default scenario")
    try:
        content = load_yaml(document(path))
    except (OSError, YamlError) as error:
        raise PolicyError(f"{path}: not a scenario that can be read ({error})") from error
    if not isinstance(content, dict):
        raise PolicyError(f"{path}: a scenario is a YAML mapping of {', '.join(_KEYS)}")
    try:
        return _scenario(content, str(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise PolicyError(f"{path}: key {key!r}: {first['msg']}") from error


def _scenario(content: dict[str, Any], where: str) -> TechniqueScenario:
    _require_name(where, content, _KEYS)
    workload = content.get("workload", {})
    file = parse_scenario_dict({"deployment": _DEFAULT, **content, "workload": {}}, where)
    try:
        server = file.servers().own
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from error
    if not isinstance(server, ToggledServer):
        raise PolicyError(f"{where}: deployment.model: techniques need a model and a gpu")
    settings = dict(file.policies)
    kv_tokens = settings.pop("kv_tokens", server.setup.kv_tokens)
    policies = with_settings(server.setup.policies, settings)
    setup = replace(server.setup, policies=policies, kv_tokens=kv_tokens)
    experiment = _Loaded.model_validate({"workload": workload}).workload
    _require_name(f"{where}: workload", workload, Experiment.__match_args__)
    scenario = TechniqueScenario(setup, server.toggles, experiment, bool(workload))
    _ = scenario.setup  # refuses what does not go together
    return scenario


def _require_name(where: str, section: dict[str, Any], known: Any) -> None:
    for key in section:
        require_name(str(key), known, f"{where}: unknown key", PolicyError)
