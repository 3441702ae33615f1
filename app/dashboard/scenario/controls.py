"""The scenario as flat controls: their names are the keys of the session and of the link.

``as_controls`` and ``from_controls`` go both ways; what has no control of its own stands in ``set``
as KEY=VALUE.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from servetwin.app.dashboard.scenario.allowed_choices import offered, require_all_offered
from servetwin.app.scenario.files.scenario_file import (
    GENERATED,
    PROFILE,
    SAMPLE,
    ScenarioFile,
    checked_columns,
    parse_scenario_dict,
)
from servetwin.app.scenario.setting_docs import setting_docs
from servetwin.app.scenario.settings import parse_settings
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS
from servetwin.sim.experiments.scenario import ClusterConfig
from servetwin.workloads.errors import PolicyError

FROM_PROFILE, DATA_SHEET = "profile", "data sheet"
"""How a server is given: a profile, or a model on a device by its data sheet."""
OWN = "server's own"
"""A choice that leaves a setting to the server."""
SHARED_PREFIX = "Shared prefix, tokens"
"""What generated prompts have in common."""
ASSUMED_PREFIX, CONVERSATIONS = "Assumed shared prefix", "Prompts hold their session"
"""What prompts of a trace without prefix ids are assumed to have in common."""


@dataclass(frozen=True, slots=True)
class Control:
    """What a control takes: ``many`` values or one, within its bounds or of its ``choices``."""

    kind: Any
    key: str = ""
    """The setting that it shows, by its key in a scenario file."""
    many: bool = False
    low: Any = None
    high: Any = None
    choices: tuple[str, ...] = ()

    @property
    def help(self) -> str | None:
        """What the setting means, if the control shows one."""
        return setting_docs()[self.key].sentence if self.key else None

    def problem(self, value: Any) -> str | None:
        """Return why it does not take a value, in few words; None where it does."""
        try:
            _adapter(self.kind).validate_python(value)
        except ValidationError as error:
            return str(error.errors()[0]["msg"]).lower()
        return None

    def parsed(self, text: str) -> Any:
        """Return the value that a text without a ``problem`` stands for."""
        return _adapter(self.kind).validate_python(text)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _number(key: str, low: float, high: float) -> Control:
    kind = Annotated[float, Field(ge=low, le=high)]
    return Control(kind, key, low=float(low), high=float(high))


def _count(key: str, high: int, low: int | None = None) -> Control:
    low = setting_docs()[key].least if low is None else low
    return Control(Annotated[int, Field(ge=low, le=high)], key, low=low, high=high)


def _choice(key: str, *names: str) -> Control:
    return Control(Literal[names], key, choices=names)


_OFFERED = offered()
_MOST_TOKENS = 131_072
_MOST_MS = 3_600_000

CONTROLS: dict[str, Control] = {
    "workload": Control(str, "workload.source"),
    "columns": Control(Annotated[str, AfterValidator(checked_columns)], "workload.columns"),
    "rate": _number("workload.rate_per_s", 0.5, 200),
    "own_rate": Control(bool),
    "requests": _count("workload.requests", 200_000, low=10),
    "prefix_share": _number("workload.prefix_share", 0, 0.95),
    "conversations": Control(bool, "workload.conversations"),
    "arrivals": _choice("workload.arrivals", *setting_docs()["workload.arrivals"].choices),
    "cv": _number("workload.cv", 0.1, 10),
    "prompt_tokens": _count("workload.prompt_tokens", _MOST_TOKENS),
    "prompt_cv": _number("workload.prompt_cv", 0.05, 5),
    "output_tokens": _count("workload.output_tokens", _MOST_TOKENS),
    "output_cv": _number("workload.output_cv", 0.05, 5),
    "shared_prefix_tokens": _count("workload.shared_prefix_tokens", _MOST_TOKENS),
    "server": _choice("", FROM_PROFILE, DATA_SHEET),
    "profile": _choice("server.profile", *_OFFERED["profile"]),
    "model": _choice("server.model", *_OFFERED["model"]),
    "hardware": _choice("server.hardware", *_OFFERED["hardware"]),
    "techniques": Control(list[str], "server.techniques", many=True),
    "without": Control(list[str], "server.without", many=True),
    "efficiency": Control(str, "server.efficiency"),
    "preset": _choice("preset", OWN, *PRESETS),
    "batching": _choice("policies.batching", OWN, *_OFFERED["batching"]),
    "kv": _choice("policies.kv", OWN, *_OFFERED["kv"]),
    "prefix_cache": _choice("policies.prefix_cache", OWN, "on", "off"),
    "max_seqs": _count("policies.max_seqs", 65_536),
    "token_budget": _count("policies.token_budget", 1 << 24),
    "kv_tokens": _count("policies.kv_tokens", 1 << 40),
    "replicas": _count("cluster.replicas", 64),
    "router": _choice("cluster.router", OWN, *_OFFERED["router"]),
    "set": Control(str),
    "ttft_ms": _number("slo.ttft_ms", 0.1, _MOST_MS),
    "tpot_ms": _number("slo.tpot_ms", 0.1, _MOST_MS),
    "e2e_ms": _number("slo.e2e_ms", 0.1, _MOST_MS),
    "percentile": _number("slo.percentile", 1, 100),
    "seed": _count("seed", 2**32 - 1),
}


def _controls_of(section: str) -> tuple[str, ...]:
    """Return the controls that have the name of their setting."""
    return tuple(name for name, control in CONTROLS.items() if control.key == f"{section}.{name}")


_WORKLOAD, _POLICIES = _controls_of("workload"), _controls_of("policies")
_CLUSTER, _LIMITS = _controls_of("cluster"), _controls_of("slo")
_CHOICES = tuple(name for name, control in CONTROLS.items() if OWN in control.choices)
_SWITCH = {OWN: None, "on": True, "off": False}
_SLIDER_RATE_PER_S = 10.0


def as_controls(scenario: ScenarioFile) -> dict[str, Any]:
    """Return the value of every control.

    Raises ``PolicyError`` where the scenario names what is not offered here, or a control cannot
    show it.
    """
    require_all_offered(scenario)
    workload, server = scenario.workload, scenario.server
    policies, cluster = dict(scenario.policies), dict(scenario.cluster)
    controls: dict[str, Any] = {
        "workload": workload.source,
        "own_rate": workload.rate_per_s is None,
        "rate": float(workload.rate_per_s or _SLIDER_RATE_PER_S),
        **{name: getattr(workload, name) for name in _WORKLOAD},
        "server": DATA_SHEET if server.model else FROM_PROFILE,
        "profile": server.profile or PROFILE,
        "model": server.model or "llama-3-8b",
        "hardware": server.hardware or "h100",
        "techniques": list(server.techniques),
        "without": list(server.without),
        "efficiency": server.efficiency or "",
        "preset": scenario.preset,
        **{name: policies.pop(name, None) for name in _POLICIES},
        **{name: cluster.pop(name, None) for name in _CLUSTER},
        **{name: getattr(scenario.slo, name) for name in _LIMITS},
        "seed": scenario.seed,
    }
    controls["prefix_cache"] = {v: k for k, v in _SWITCH.items()}[controls["prefix_cache"]]
    controls.update({name: controls[name] or OWN for name in _CHOICES})
    rest = {**policies, **cluster}
    controls["set"] = " ".join(f"{key}={_text(value)}" for key, value in rest.items())
    _require_shown(controls)
    return controls


def from_controls(controls: Mapping[str, Any]) -> ScenarioFile:
    """Return the scenario of the controls; raises ``ServetwinError`` naming what cannot be."""
    policies = _chosen({name: controls[name] for name in _POLICIES})
    if "prefix_cache" in policies:
        policies["prefix_cache"] = _SWITCH[policies["prefix_cache"]]
    cluster = _chosen({name: controls[name] for name in _CLUSTER})
    for key, value in _more_settings(controls["set"]).items():
        (policies if key in PolicyConfig.__dataclass_fields__ else cluster)[key] = value
    keeps_rate = controls["own_rate"] and controls["workload"] != GENERATED
    found = {
        "workload": {
            "source": controls["workload"],
            "rate_per_s": None if keeps_rate else controls["rate"],
            **{name: controls[name] for name in _WORKLOAD},
            "columns": controls["columns"] if is_uploaded(controls["workload"]) else None,
        },
        "server": _server(controls),
        "preset": _chosen(controls).get("preset"),
        "policies": policies,
        "cluster": cluster,
        "slo": {name: controls[name] for name in _LIMITS},
        "seed": controls["seed"],
    }
    scenario = parse_scenario_dict(found, "the scenario")
    require_all_offered(scenario)
    return scenario


def changes(before: ScenarioFile, after: ScenarioFile) -> dict[str, tuple[Any, Any]]:
    """Return the controls that show something else, each with its value before and after."""
    a, b = as_controls(before), as_controls(after)
    return {name: (a[name], b[name]) for name in CONTROLS if a[name] != b[name]}


def is_generated(workload: str) -> bool:
    """Return whether the workload is drawn from distributions, not read from rows."""
    return workload == GENERATED


def is_uploaded(workload: str) -> bool:
    """Return whether the workload is a file of the user."""
    return workload not in (GENERATED, SAMPLE)


def workload_names(uploaded: Mapping[str, Any]) -> list[str]:
    """Return every workload that can be chosen."""
    return [GENERATED, SAMPLE, *uploaded]


def _require_shown(controls: Mapping[str, Any]) -> None:
    for name, value in controls.items():
        if value is not None and (problem := CONTROLS[name].problem(value)):
            raise PolicyError(f"{name}: {value!r} cannot be shown here: {problem}")


def _server(controls: Mapping[str, Any]) -> dict[str, Any]:
    if controls["server"] == FROM_PROFILE:
        return {"profile": controls["profile"]}
    return {
        "model": controls["model"],
        "hardware": controls["hardware"],
        "techniques": tuple(controls["techniques"]),
        "without": tuple(controls["without"]),
        "efficiency": controls["efficiency"] or None,
    }


def _more_settings(text: str) -> dict[str, Any]:
    settings = parse_settings(text.split(), "more settings", PolicyConfig, ClusterConfig)
    for key in settings:
        if key in CONTROLS:
            raise PolicyError(f"more settings: {key} has a control of its own")
    return settings


def _chosen(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not left to the server."""
    return {name: value for name, value in settings.items() if value not in (None, OWN)}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
