"""The scenario as flat controls: their names are the keys of the session and of the link.

``as_controls`` and ``from_controls`` go both ways; what has no control of its own stands in ``set``
as KEY=VALUE.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import GenericAlias
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from servetwin.app.dashboard.scenario.allowed_choices import (
    evidence_of,
    offered,
    places,
    require_all_offered,
)
from servetwin.app.scenario.files import scenario_file
from servetwin.app.scenario.setting_docs import setting_docs
from servetwin.app.scenario.settings import parse_settings
from servetwin.app.words import asset_table
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.workloads.errors import PolicyError

# A choice that leaves a setting to the server.
OWN = "server default"


@dataclass(frozen=True, slots=True)
class Control:
    """A control as ``controls.yaml`` describes it: what it takes, and how it is shown."""

    kind: str
    label: str = ""
    key: str = ""
    note: str = ""
    low: Any = None
    high: Any = None
    choices: tuple[str, ...] = ()
    look: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, name: str, *, help: str = "", choices: Sequence[str] = (), **row: Any) -> "Control":
        """Return the control of that name; ``row`` is the rest of its description."""
        kind, key, low = row.pop("kind"), row.pop("key", ""), row.pop("low", None)
        if kind == "count" and low is None:
            low = setting_docs()[key].least
        if kind.endswith(("choice", "choices")):
            choices = choices or _names(name, key)
        names = (OWN, *choices) if kind == "optional choice" else tuple(choices)
        real = float if kind == "number" else int
        bounds = (low, row.pop("high", None))
        low, high = (None if bound is None else real(bound) for bound in bounds)
        label = row.pop("label", "")
        return cls(kind, label, key, help, low=low, high=high, choices=names, look=row)

    @property
    def many(self) -> bool:
        """Return whether it takes several values."""
        return self.kind in ("texts", "numbers", "choices")

    @property
    def help(self) -> str | None:
        """What the setting means, if the control shows one."""
        return setting_docs()[self.key].sentence if self.key else None

    @property
    def hint(self) -> str | None:
        """The help, and what else there is to say."""
        return f"{self.help or ''} {self.note}".strip() or None

    def problem(self, value: Any) -> str | None:
        """Return why it does not take a value, in few words; None where it does."""
        try:
            self.parsed(value)
        except ValidationError as error:
            return str(error.errors()[0]["msg"]).lower()
        return None

    def parsed(self, value: Any) -> Any:
        """Return the value that a text without a ``problem`` stands for."""
        return _adapter(self).validate_python(value)


def _names(name: str, key: str) -> Sequence[str]:
    if name == "arrivals":
        return setting_docs()[key].choices
    return list(PRESETS) if name == "preset" else offered()[name]


@cache
def _adapter(control: Control) -> TypeAdapter[Any]:
    bounds, one = Field(ge=control.low, le=control.high), Literal.__getitem__(control.choices)
    types: dict[str, Any] = {
        "text": str,
        "texts": list[str],
        "switch": bool,
        "columns": Annotated[str, AfterValidator(scenario_file.checked_columns)],
        "count": Annotated[int, bounds],
        "number": Annotated[float, bounds],
        "numbers": list[float],
        "choices": GenericAlias(list, one),
    }
    return TypeAdapter(types.get(control.kind, one))


# The controls of the scenario, and those of single pages that a link may hold beside them.
CONTROLS, PAGE_CONTROLS = (
    {name: Control.of(name, **row) for name, row in asset_table("controls.yaml")[part].items()}
    for part in ("scenario", "pages")
)


_SWITCH = {None: None, True: "on", False: "off"}
# What controls show where a deployment leaves them out.
_PLAIN = {"layout": "tp=1", "server": "none", "efficiency": ""}
_SLIDER_RATE_PER_S = 10.0
_SECTIONS = ("workload", "deployment", "policies", "cluster", "slo")
# Sections whose settings may be left to the server.
_OPEN = ("policies", "cluster")


def as_controls(scenario: scenario_file.ScenarioFile) -> dict[str, Any]:
    """Return the value of every control.

    Raises ``PolicyError`` where the scenario names what is not offered here, or a control cannot
    show it.
    """
    require_all_offered(scenario)
    shown_keys = {control.key for control in CONTROLS.values()} | {"deployment.profile"}
    for name in scenario.deployment.settings():
        if f"deployment.{name}" not in shown_keys:
            raise PolicyError(f"deployment.{name}: has no control here")
    record, rate_per_s = scenario.model_dump(), scenario.workload.rate_per_s
    shown = {name: _setting(record, control.key) for name, control in CONTROLS.items()}
    more = {**scenario.policies, **scenario.cluster}
    rest = (f"{key}={_text(value)}" for key, value in more.items() if key not in CONTROLS)
    shown |= {
        "own_rate": rate_per_s is None,
        "rate": float(rate_per_s or _SLIDER_RATE_PER_S),
        **_of_profile(scenario.deployment.profile),
        **{name: shown[name] or value for name, value in _PLAIN.items()},
        "techniques": list(scenario.deployment.techniques),
        "without": list(scenario.deployment.without),
        "prefix_cache": _SWITCH[shown["prefix_cache"]],
        "set": " ".join(rest),
    }
    shown |= {
        name: shown[name] or OWN for name in CONTROLS if CONTROLS[name].kind == "optional choice"
    }
    _require_shown(shown)
    return shown


def _of_profile(names: Sequence[str]) -> dict[str, str]:
    """Return the model and the device of a profile, which is their evidence; {} without one."""
    if len(names) > 1:
        raise PolicyError("profile: pools of several profiles have no controls here")
    return {
        key: value
        for name in names
        for key, value in zip(("model", "gpu", "times"), (*places()[name], name), strict=True)
    }


def _setting(record: Mapping[str, Any], key: str) -> Any:
    """Return the setting of a scenario by its key; None where it has none."""
    section, _, name = key.rpartition(".")
    return (record[section] if section else record).get(name)


@cache
def default_controls() -> Mapping[str, Any]:
    """Return the controls of the default scenario."""
    return as_controls(scenario_file.ScenarioFile())


def from_controls(controls: Mapping[str, Any]) -> scenario_file.ScenarioFile:
    """Return the scenario of the controls; raises ``ServetwinError`` naming what cannot be."""
    record: dict[str, Any] = {name: {} for name in _SECTIONS}
    for name, control in CONTROLS.items():
        section, _, key = control.key.rpartition(".")
        is_open = controls[name] == OWN or (section in _OPEN and controls[name] is None)
        if key and not is_open:
            (record[section] if section else record)[key] = controls[name]
    policies = record["policies"]
    if "prefix_cache" in policies:
        policies["prefix_cache"] = policies["prefix_cache"] == "on"
    for key, value in _more_settings(controls["set"]).items():
        (policies if key in PolicyConfig.__dataclass_fields__ else record["cluster"])[key] = value
    record["deployment"] = _deployment(record["deployment"])
    if controls["own_rate"] and controls["workload"] != scenario_file.GENERATED:
        record["workload"]["rate_per_s"] = None
    if controls["workload"] in (scenario_file.GENERATED, scenario_file.SAMPLE):
        record["workload"]["columns"] = None
    scenario = scenario_file.parse_scenario_dict(record, "the scenario")
    require_all_offered(scenario)
    return scenario


def _deployment(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a deployment; a profile that is none of it gives way to the best evidence."""
    given = given_settings(settings)
    if given.get("times") in places():
        if given["times"] in evidence_of(given):
            return {"profile": given["times"]}
        del given["times"]
    return given


def given_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a deployment that its controls do not leave out."""
    plain: tuple[Any, ...] = (None, [], OWN)
    return {k: v for k, v in settings.items() if v not in plain and v != _PLAIN.get(k)}


def changes(
    before: scenario_file.ScenarioFile, after: scenario_file.ScenarioFile
) -> dict[str, tuple[Any, Any]]:
    """Return the controls that show something else, each with its value before and after."""
    a, b = as_controls(before), as_controls(after)
    return {name: (a[name], b[name]) for name in CONTROLS if a[name] != b[name]}


def _require_shown(controls: Mapping[str, Any]) -> None:
    for name, value in controls.items():
        if value is not None and (problem := CONTROLS[name].problem(value)):
            raise PolicyError(f"{name}: {value!r} cannot be shown here: {problem}")


def _more_settings(text: str) -> dict[str, Any]:
    settings = parse_settings(text.split(), "more settings", PolicyConfig, ClusterConfig)
    for key in settings:
        if key in CONTROLS:
            raise PolicyError(f"more settings: {key} has a control of its own")
    return settings


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
