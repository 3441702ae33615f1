"""The reference of scenarios: what is in ``scenario.yaml``, and every setting of the policies."""

from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args, get_origin

from markdown_table import table
from pydantic_core import PydanticUndefinedType

from servetwin.app.scenario.options.deployment import Deployment
from servetwin.app.scenario.setting_docs import SettingDoc, setting_docs
from servetwin.sim.catalogue.entry import FrozenModel

RUN_KEYS = {
    "trace": "where the requests came from",
    "notes": "what was changed in them on the way",
    "profile": "name or path of the step times, or a list of them",
    "model, gpu, techniques, without, efficiency, layout, server, link, times, overheads": (
        "not a profile, as options"
    ),
    "eager_preset": "the preset whose eager kernels the servers have, if any",
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
_POLICIES = """Each is `--set KEY=VALUE` of `replay` and `serve`, part of `replay compare A B`, and
a field of `policies.PolicyConfig`; some have an option of their own. Where nothing is set, a value
of the profile or preset comes before the default. Pages:
[schedulers and queues](../policies/schedulers.md),
[KV memory and prefix sharing](../policies/kv-memory.md).
"""
_CLUSTER = """Options of `replay`, parts of `replay compare A B`, and fields of
`servetwin.sim.experiments.scenario.ClusterConfig` ([clusters](../policies/presets.md#clusters)).
"""


def scenario_page() -> str:
    """Return the page as Markdown."""
    keys = [(_code(key), meaning) for key, meaning in RUN_KEYS.items()]
    return "\n".join(
        [
            _INTRODUCTION,
            settings_table(),
            *(f"## {name}\n\n{settings_table(name)}" for name in ("workload", "deployment", "slo")),
            "## policies\n",
            _POLICIES,
            settings_table("policies"),
            "## cluster\n",
            _CLUSTER,
            settings_table("cluster"),
            "## scenario.yaml of a run\n",
            _RUN,
            table(("key", "meaning"), keys),
        ]
    )


def settings_table(section: str = "") -> str:
    """Return the settings of a section: what they may be, their default, what they mean."""
    rows = [
        (f"`{name}`", _value(doc), _default(doc.default), doc.meaning)
        for key, doc in setting_docs().items()
        for where, _, name in [key.rpartition(".")]
        if where == section
    ]
    return table(("key", "value", "default", "meaning"), rows)


_WORDS: Mapping[Any, str] = {
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    str: "name",
    NoneType: "`none`",
}


def _value(doc: SettingDoc) -> str:
    return " or ".join(f"`{name}`" for name in doc.choices) or _kind(doc.kind)


def _kind(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        return f"list of {_kind(inner[0])}s"
    if origin is dict or hint is Deployment or _is_section(hint):
        return "keys below"
    return " or ".join(_kind(kind) for kind in inner) if inner else _WORDS[hint]


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, FrozenModel)


def _default(value: Any) -> str:
    if isinstance(value, FrozenModel | Deployment | PydanticUndefinedType | tuple):
        return ""
    if value == "":
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool | None) else value}`"


def _code(keys: str) -> str:
    return ", ".join(f"`{key}`" for key in keys.split(", "))
