"""What this dashboard offers: shipped names, and the additions of its command line.

Links and uploaded files choose among these: no path of a file ever comes from a browser.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from servetwin.app.scenario.files.scenario_file import ScenarioFile
from servetwin.app.scenario.options.common import Additions
from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS
from servetwin.sim.catalogue.catalogue import find_model
from servetwin.sim.catalogue.hub_names import find_name, hub_models
from servetwin.sim.catalogue.links import known_machines
from servetwin.sim.catalogue.shipped import shipped_hardware, shipped_models
from servetwin.sim.experiments.scenario import devices_of
from servetwin.sim.step_times.profile import load_profile, shipped_profiles
from servetwin.sim.step_times.tables.kernel_library import backends_with_tables
from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.plugins import names_a_file, split_settings

SERVERS = ("vllm@0.19", "vllm@0.8", "sglang@0.5", "trtllm@1.2")
_SERVER = re.compile(r"(vllm|sglang|trtllm)(@v?\d[\w.+-]*)?", re.IGNORECASE)
_MODEL = re.compile(r"([\w-][\w.-]*/)?[\w-][\w.-]*")


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
        "profile": list(places()),
        "model": [*shipped_models(), *hub_models()],
        "gpu": list(dict.fromkeys([*shipped_hardware(), *(gpu for _, gpu in places().values())])),
        "plan_gpus": list(shipped_hardware()),
        "times": ["kernels", "sheet", *places()],
        "link": list(known_machines()),
        "server": ["none", *SERVERS],
        "batching": [*SCHEDULERS, *added.batching],
        "kv": [*MEMORIES, *added.kv],
        "router": list(ROUTERS),
        "eviction": list(EVICTION_ORDERS),
    }


@cache
def places() -> dict[str, tuple[str, str]]:
    """Return the model and the device of every profile that is offered."""
    names = [*shipped_profiles(), *map(str, additions().profiles)]
    loaded = {name: load_profile(name) for name in names}
    return {
        name: (str(profile.engine.get("model", name)), devices_of(profile)[0])
        for name, profile in loaded.items()
    }


def evidence_of(deployment: Mapping[str, Any]) -> list[str]:
    """Return what step times of a deployment may rest on, by the settings that are given.

    A profile is of one server of its model and device, as it was measured.
    """
    model, gpu = (deployment.get(name) for name in ("model", "gpu"))
    others = {name for name, value in deployment.items() if value} - {"model", "gpu", "times"}
    known = [] if others else [name for name, place in places().items() if place == (model, gpu)]
    has_tables = bool(backends_with_tables(str(model), str(gpu)))
    return ["kernels"] * has_tables + ["sheet"] * (gpu in shipped_hardware()) + known


def require_all_offered(scenario: ScenarioFile) -> None:
    """Raise ``PolicyError`` where a scenario names what this server does not offer, files above
    all: those that ``path.py:Class``, a profile, a model or a technique's parameter could be."""
    deployment = scenario.deployment
    for profile in deployment.profile:
        require_offered("profile", profile)
    for control in ("gpu", "times", "link"):
        require_offered(control, getattr(deployment, control))
    if deployment.model and not _is_a_name(deployment.model):
        require_offered("model", deployment.model)
    if deployment.server and not _SERVER.fullmatch(deployment.server):
        raise PolicyError(
            f"server: {deployment.server!r} is not offered here; name it with its version, such "
            f"as {SERVERS[0]}"
        )
    for section in (scenario.policies, scenario.cluster):
        for control in section:
            require_offered(control.replace("decode_", ""), section[control])
    for technique in (*deployment.techniques, *deployment.without):
        _require_shipped(technique)


def _is_a_name(model: str) -> bool:
    """Return whether a model is known by its name, so that no file is read for it."""
    if not _MODEL.fullmatch(model) or model.endswith(".json") or os.path.exists(model):
        return False
    return find_name(model, lambda n: find_model(n) if n in shipped_models() else None) is not None


def require_offered(control: str, value: object) -> None:
    """Raise ``PolicyError`` with the nearest name where ``value`` is not offered."""
    choices = offered().get(control)
    if choices is not None and value is not None and value not in choices:
        hint = did_you_mean(str(value), choices)
        raise PolicyError(f"{control}: {value!r} is not offered here; {hint}")


def _require_shipped(technique: str) -> None:
    name, settings = split_settings(technique)
    if names_a_file(name) or any(mark in settings for mark in (".json", ".py", "/")):
        raise PolicyError(f"techniques: {technique!r} names a file; name a shipped one")
