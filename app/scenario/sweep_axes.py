"""``--vary KEY=A,B,...``: what a grid varies, and the scenario at each of its points."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.options.policy import ScenarioOptions
from servetwin.app.scenario.options.tables import TableOptions
from servetwin.app.scenario.scenarios import idle_settings, settled_scenario
from servetwin.app.scenario.servers import Servers
from servetwin.app.scenario.settings import REGISTRIES, NamedPolicies, parse_settings
from servetwin.policies.config import PolicyConfig, require_known
from servetwin.policies.presets import find_preset
from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.catalogue.layout import Layout
from servetwin.sim.catalogue.links import find_link
from servetwin.sim.catalogue.servers import read_server
from servetwin.sim.experiments.scenario import ClusterConfig, Scenario
from servetwin.sim.step_times.server_model import load_server
from servetwin.sim.techniques.registry import find_technique
from servetwin.workloads.errors import PolicyError, ServetwinError, require_name
from servetwin.workloads.program.key_values import key_value, number_in
from servetwin.workloads.trace import Trace

_FORM = "KEY=VALUE,VALUE ..."
_DEPLOYMENT_KEYS = ("profile", "model", "gpu", "layout", "server", "link", "times")
_CLUSTER_KEYS = get_type_hints(ClusterConfig)
_KINDS = {**get_type_hints(PolicyConfig), **_CLUSTER_KEYS}
_TOGGLES = ("technique", "without")
# The keys that are no plain settings.
_APART = (*_DEPLOYMENT_KEYS, *_TOGGLES, "preset")
_KEYS = (*_APART, *_KINDS)
# What raises ``ServetwinError`` for a name that is none, by the key whose values are names.
_REQUIRE_NAMED: dict[str, Callable[[str], object]] = {
    "preset": find_preset,
    "profile": load_server,
    "model": find_model,
    "gpu": find_hardware,
    "layout": lambda text: Layout.parse(text.replace("+", ",")),
    "server": read_server,
    "link": find_link,
    "times": lambda text: TableOptions(text).check(),
    "technique": find_technique,
    "without": find_technique,
    **{key: registry.require for key, registry in REGISTRIES.items()},
}
# The value of a toggle that names no technique.
_NONE = "none"


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting and the values it takes, as they were written."""

    key: str
    values: tuple[str, ...]

    @property
    def names_server(self) -> bool:
        """Whether it says what serves."""
        return self.key in _DEPLOYMENT_KEYS


def parse_axis(text: str) -> Axis:
    """Reads ``max_seqs=16,64``; the key is any setting of policies, cluster or deployment, or a
    preset.

    Raises ``PolicyError`` with the nearest key, or naming the value that cannot be: a name that is
    unknown would else be a point that is missing from the grid.
    """
    key, listed = key_value(text, "--vary", form=_FORM)
    values = tuple(value.strip() for value in listed.split(","))
    if not all(values):
        raise PolicyError(f"--vary: {text!r} is not {_FORM}")
    require_name(key, _KEYS, "--vary: unknown setting", PolicyError)
    if len(set(values)) < len(values):
        raise PolicyError(f"--vary: {text!r} names a value twice")
    for value in values:
        _check(key, value)
    return Axis(key, values)


def swept_axes(texts: Sequence[str], servers: Deployment) -> list[Axis]:
    """Read what a grid over ``servers`` varies; raises ``PolicyError`` as ``parse_axis``, and where
    nothing names a server."""
    axes = [parse_axis(text) for text in texts]
    if not any(axis.names_server for axis in axes):
        servers.require_named()
    return axes


def parse_rates(text: str) -> tuple[float, ...]:
    """Reads ``2,4,8``, requests per second. Raises ``PolicyError`` naming what is no rate."""
    rates = []
    for part in text.split(","):
        rates.append(number_in(part))
        if not rates[-1] > 0:
            raise PolicyError(f"--rates: {part.strip()!r} is not a number above 0")
    return tuple(dict.fromkeys(rates))


def combinations(axes: Sequence[Axis]) -> Iterator[dict[str, str]]:
    """Yield every combination, by key; raises ``PolicyError`` where two axes have the same key."""
    keys = [axis.key for axis in axes]
    if len(set(keys)) < len(keys):
        raise PolicyError(f"--vary: {max(keys, key=keys.count)!r} is varied twice")
    for values in product(*(axis.values for axis in axes)):
        yield dict(zip(keys, values, strict=True))


def scenario_at(
    options: ScenarioOptions, trace: Trace, values: dict[str, str], say: Callable[[str], object]
) -> Scenario:
    """Return the scenario of the options with ``values`` over it.

    ``say`` gets what a user should know of it. Raises ``ServetwinError`` where that cannot be.
    """
    texts = [f"{key}={value}" for key, value in values.items() if key not in _APART]
    settings = parse_settings(texts, "--vary", PolicyConfig, ClusterConfig)
    cluster = {key: settings.pop(key) for key in list(settings) if key in _CLUSTER_KEYS}
    policy = replace(options.policy, preset=values.get("preset", options.policy.preset))
    named = NamedPolicies(settings, {}, cluster)
    servers = _servers(options, values)
    scenario, notes, _ = settled_scenario(trace, servers, policy, options.cluster, named)
    for note in (*notes, *idle_settings(scenario, trace)):
        say(note)
    return scenario


def _servers(options: ScenarioOptions, values: dict[str, str]) -> Servers:
    given: dict[str, Any] = {key: values[key] for key in _DEPLOYMENT_KEYS if key in values}
    if "profile" in given:
        given["profile"] = (given["profile"],)
    if "layout" in given:
        given["layout"] = given["layout"].replace("+", ",")
    named = [values.get(key, _NONE).replace("+", ",") for key in _TOGGLES]
    on, off = (() if name == _NONE else (name,) for name in named)
    point = Deployment(techniques=on, without=off, **given)
    return point.over(options.servers).servers(options.cluster.device_link())


def _check(key: str, value: str) -> None:
    if key not in _APART:
        parse_settings([f"{key}={value}"], "--vary", PolicyConfig, ClusterConfig)
    if key in _TOGGLES and value == _NONE:
        return
    try:
        if key in _REQUIRE_NAMED:
            _REQUIRE_NAMED[key](value.replace("+", ",") if key in _TOGGLES else value)
        elif get_origin(_KINDS.get(key)) is Literal:
            require_known(key, value, get_args(_KINDS[key]))
    except ServetwinError as error:
        raise PolicyError(f"--vary: {error}") from error
