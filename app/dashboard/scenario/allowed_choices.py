"""What this dashboard offers: shipped names, and the additions of its command line.

Links and uploaded files choose among these: no path of a file ever comes from a browser.
"""

import json
import sys
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.scenario.options.common import Additions
from servetwin.policies.prefix.eviction import EVICTION_ORDERS
from servetwin.policies.registry import MEMORIES, ROUTERS, SCHEDULERS
from servetwin.sim.catalogue.catalogue import shipped_hardware, shipped_models
from servetwin.sim.step_times.profile import shipped_profiles
from servetwin.sim.techniques.registry import find_technique
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.plugins import names_a_file, split_settings


@cache
def additions() -> Additions:
    """Return the additions of this server's command line."""
    added = json.loads(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1][:1] == "{" else {}
    return TypeAdapter(Additions).validate_python(added)


def runs_folder() -> Path:
    """Return the folder in which runs are kept."""
    return additions().runs


@cache
def offered() -> dict[str, list[str]]:
    """Return the choices of the controls that have a closed list."""
    added = additions()
    return {
        "profile": [*shipped_profiles(), *map(str, added.profiles)],
        "model": shipped_models(),
        "hardware": shipped_hardware(),
        "batching": [*SCHEDULERS, *added.batching],
        "kv": [*MEMORIES, *added.kv],
        "router": list(ROUTERS),
        "eviction": list(EVICTION_ORDERS),
    }


def require_all_offered(scenario: ScenarioFile) -> None:
    """Raise ``PolicyError`` where a scenario names what this server does not offer, files above
    all: those that ``path.py:Class``, a profile, a model or a technique's parameter could be."""
    server = scenario.server
    for control in ("profile", "model", "hardware"):
        require_offered(control, getattr(server, control))
    for section in (scenario.policies, scenario.cluster):
        for control in section:
            require_offered(control.replace("decode_", ""), section[control])
    for technique in (*server.techniques, *server.without):
        _require_shipped(technique)


def require_offered(control: str, value: object) -> None:
    """Raise ``PolicyError`` with the nearest name where ``value`` is not offered."""
    choices = offered().get(control)
    if choices is not None and value is not None and value not in choices:
        hint = did_you_mean(str(value), choices)
        raise PolicyError(f"{control}: {value!r} is not offered here; {hint}")


def offered_technique(text: str) -> Technique:
    """Return a technique with its parameters; raise ``PolicyError`` where it names a file."""
    _require_shipped(text)
    return find_technique(text)


def _require_shipped(technique: str) -> None:
    name, settings = split_settings(technique)
    if names_a_file(name) or any(mark in settings for mark in (".json", ".py", "/")):
        raise PolicyError(f"techniques: {technique!r} names a file; name a shipped one")
