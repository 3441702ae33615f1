"""A scenario file for ``servetwin techniques``: a server made of data sheets, and its load."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from servetwin.app.scenario.settings import with_settings
from servetwin.sim.techniques.registry import Toggles, build_setup
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Experiment, Technique
from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.files import document
from servetwin.workloads.yaml_text import YamlError, load_yaml

MODEL, HARDWARE = "llama-2-7b", "a100-80gb"


_Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
_Requests = Annotated[int, Field(ge=1, le=1_000_000)]


class _Load(BaseModel):
    """The bounds of an ``Experiment``."""

    model_config = ConfigDict(allow_inf_nan=False)

    prompt_tokens: _Tokens = 1
    output_tokens: _Tokens = 1
    spread: Annotated[float, Field(ge=0, le=100)] = 0.0
    longest_tokens: _Tokens = 1
    load: Annotated[float, Field(gt=0, le=1_000)] = 1.0
    alone: _Requests = 1
    loaded: _Requests = 1
    saturated: _Requests = 1
    shared_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    samples: Annotated[int, Field(ge=1, le=10_000)] = 1


class _Loaded(BaseModel):
    """The section of the load, whose keys are named with it."""

    workload: _Load


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str = MODEL
    hardware: str = HARDWARE
    techniques: list[str] = Field(default_factory=list)
    without: list[str] = Field(default_factory=list)
    efficiency: dict[str, float] = Field(default_factory=dict)
    policies: dict[str, Any] = Field(default_factory=dict)
    workload: dict[str, Any] = Field(default_factory=dict)


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

    Keys: model, hardware, techniques and without (on both sides of every comparison), efficiency,
    policies, workload. Techniques come last, over the policies. Raises ``PolicyError`` that names
    the file, the key and what would be right.
    """
    if path is None:
        return _scenario(_File(), "default scenario")
    try:
        content = load_yaml(document(path))
    except (OSError, YamlError) as error:
        raise PolicyError(f"{path}: not a scenario that can be read ({error})") from error
    known = _File.model_fields
    if not isinstance(content, dict):
        raise PolicyError(f"{path}: a scenario is a YAML mapping of {', '.join(known)}")
    _require_known(str(path), content, known)
    try:
        return _scenario(_File.model_validate(content), str(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise PolicyError(f"{path}: key {key!r}: {first['msg']}") from error


def _scenario(file: _File, where: str) -> TechniqueScenario:
    setup = build_setup(file.model, file.hardware, efficiency=file.efficiency)
    try:
        toggles = Toggles.of(file.techniques, file.without)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from error
    if file.policies:
        _require_known(f"{where}: policies", file.policies, setup.policies.as_dict())
        settings = dict(file.policies)
        kv_tokens = settings.pop("kv_tokens", None)
        policies = with_settings(setup.policies, settings)
        setup = Setup(setup.deployment, policies, setup.cluster, setup.acceptance, kv_tokens)
    _require_known(f"{where}: workload", file.workload, Experiment.__match_args__)
    load = _Loaded.model_validate({"workload": file.workload}).workload
    experiment = Experiment(**load.model_dump(exclude_unset=True))
    scenario = TechniqueScenario(setup, toggles, experiment, bool(file.workload))
    _ = scenario.setup  # refuses what does not go together
    return scenario


def _require_known(where: str, section: dict[str, Any], known: Any) -> None:
    for key in section:
        if key not in known:
            raise PolicyError(f"{where}: unknown key {key!r}; {did_you_mean(str(key), known)}")
