"""The reference of plug-ins: every kind with its registered names and what a class must have."""

from inspect import getdoc
from types import FunctionType
from typing import Any

from markdown_table import table

from servetwin.policies.registry import EVICTION_ORDERS, MEMORIES, ROUTERS, SCHEDULERS
from servetwin.sim.step_times.server_model import STEP_TIMES
from servetwin.sim.techniques.registry import TECHNIQUES
from servetwin.workloads.generators.processes import ARRIVALS
from servetwin.workloads.plugin_guard import members
from servetwin.workloads.plugins import Registry
from servetwin.workloads.readers.registry import READERS

KINDS: dict[str, tuple[str, Registry[Any]]] = {
    "Schedulers": ("--batching", SCHEDULERS),
    "KV memories": ("--kv", MEMORIES),
    "Eviction orders": ("--set eviction=", EVICTION_ORDERS),
    "Routers": ("--router", ROUTERS),
    "Step times": ("--profile", STEP_TIMES),
    "Arrival processes": ("--arrivals", ARRIVALS),
    "Trace readers": ("--reader", READERS),
    "Techniques": ("--technique", TECHNIQUES),
}
_INTRODUCTION = """# Plug-ins

A plug-in is a registered name, or a class of a file of yours as `path.py:Class`
([your own policy](../guides/own-policy.md)). Arrival processes and techniques take settings after
a further colon: `mine.py:Bursts:pause=2`.
"""
_SHIPPED = "The registered ones are profiles, data sheets and tables, which are no classes.\n"


def plugins_page() -> str:
    """Return the page."""
    return "\n".join([_INTRODUCTION, *(_section(title, *of) for title, of in KINDS.items())])


def _section(title: str, option: str, registry: Registry[Any]) -> str:
    wanted = members(registry.interface)
    methods = [f"`{name}()`" for name, kind in wanted.items() if isinstance(kind, FunctionType)]
    others = [f"`{name}`" for name, kind in wanted.items() if not isinstance(kind, FunctionType)]
    has = f"methods {', '.join(methods)}"
    if others:
        has += f", attributes {', '.join(others)}"
    interface = f"{registry.interface.__module__}.{registry.interface.__name__}"
    about = f"`{option}`; a class is built as `Class({registry.takes})`. `{interface}`: {has}."
    rows = [(f"`{name}`", _first_sentence(registry[name])) for name in registry]
    return f"## {title}\n\n{about}\n\n{table(('name', 'what it is'), rows) if rows else _SHIPPED}"


def _first_sentence(of: Any) -> str:
    text = " ".join((getdoc(of) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".") + "."
