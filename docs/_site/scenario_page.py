"""The reference of scenarios: what is in ``scenario.yaml``, and every setting of the policies."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from attribute_docs import attribute_docs
from markdown_table import table
from pydantic_core import PydanticUndefinedType

from app.scenario.scenario_file import Limits, ScenarioFile, Server, Workload
from policies.config import PolicyConfig
from sim.experiments.scenario import ClusterConfig
from sim.shapes.part import Part

RUN_KEYS = {
    "trace": "where the requests came from",
    "notes": "what was changed in them on the way",
    "profile": "name or path of the step times, or a list of them",
    "model, hardware, techniques, efficiency, tables": "instead of a profile, as asked for",
    "policies": "the settings above, all of them",
    "cluster": "the settings above, all of them",
    "seed": "of every random stream",
}
"""The keys of ``scenario.yaml`` that ``replay --out`` writes."""
_INTRODUCTION = """# Scenario

A scenario as the dashboard has it, in its link and as YAML, and as `--scenario` of the command line
reads it. Every key may be left out; one that is not known is an error.
"""
_RUN = """`replay --out` writes all that is needed to run it again to `scenario.yaml` of the run
folder. A load test writes its endpoint, trace, notes and options there.
"""
_POLICIES = """Each is `--set KEY=VALUE` of `replay` and `serve`, part of `--compare A B`, and a
field of `policies.PolicyConfig`; some have an option of their own. Where nothing is set, a value of
the profile or preset comes before the default. Pages: [schedulers](../policies/schedulers.md),
[queueing](../policies/queueing.md), [KV memory](../policies/kv-memory.md),
[prefix sharing](../policies/prefix-sharing.md), [preemption](../policies/preemption.md).
"""
_CLUSTER = """Options of `replay`, parts of `--compare A B`, and fields of
`sim.experiments.scenario.ClusterConfig` ([clusters](../policies/cluster.md)).
"""


def scenario_page() -> str:
    """The page."""
    parts = {"workload": Workload, "server": Server, "slo": Limits}
    keys = [(_code(key), meaning) for key, meaning in RUN_KEYS.items()]
    return "\n".join(
        [
            _INTRODUCTION,
            settings_table(ScenarioFile),
            *(f"## {name}\n\n{settings_table(part)}" for name, part in parts.items()),
            "## policies\n",
            _POLICIES,
            settings_table(PolicyConfig),
            "## cluster\n",
            _CLUSTER,
            settings_table(ClusterConfig),
            "## scenario.yaml of a run\n",
            _RUN,
            table(("key", "meaning"), keys),
        ]
    )


def settings_table(of: type[Any]) -> str:
    """The fields of a class: what they may be, what they are by default, what they mean."""
    kinds, meanings = get_type_hints(of), attribute_docs(of)
    rows = [
        (f"`{name}`", _kind(kinds[name]), _default(default), meanings[name])
        for name, default in _defaults(of).items()
    ]
    return table(("key", "value", "default", "meaning"), rows)


def _defaults(of: type[Any]) -> dict[str, Any]:
    if is_dataclass(of):
        return {field.name: field.default for field in fields(of)}
    return {name: field.get_default() for name, field in of.model_fields.items()}


_WORDS: Mapping[Any, str] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    str: "name",
    NoneType: "`none`",
}


def _kind(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin is tuple:
        return f"list of {_kind(inner[0])}s"
    if origin is dict or (isinstance(hint, type) and issubclass(hint, Part)):
        return "keys below"
    return " or ".join(_kind(kind) for kind in inner) if inner else _WORDS[hint]


def _default(value: Any) -> str:
    if isinstance(value, Part | PydanticUndefinedType | tuple):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool | None) else value}`"


def _code(keys: str) -> str:
    return ", ".join(f"`{key}`" for key in keys.split(", "))
