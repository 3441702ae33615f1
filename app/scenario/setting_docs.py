"""Describe each setting of a scenario: for ``--help``, the dashboard and the reference.

A setting is declared once, as an annotated field with a sentence below it: ``policies`` in
``PolicyConfig``, ``cluster`` in ``ClusterConfig``, the others in ``scenario_file``.
"""

import ast
import re
import sys
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from servetwin.app.scenario.settings import REGISTRIES
from servetwin.policies.config import PolicyConfig
from servetwin.policies.presets import PRESETS
from servetwin.workloads.generators.processes import plain_arrivals

_ROOT = Path(__file__).parents[2]
_FILE = "app.scenario.files.scenario_file"
# The class with the settings of a section that help texts name.
_SOURCES = {
    "": (_FILE, "ScenarioFile"),
    "workload": (_FILE, "Workload"),
    "policies": ("policies.config", "PolicyConfig"),
    "cluster": ("sim.experiments.scenario", "ClusterConfig"),
}


class SettingDoc(NamedTuple):
    """What a setting may be, what it is by default, and what it means in one sentence."""

    kind: Any
    default: Any
    meaning: str
    choices: tuple[str, ...]
    """Its known names; empty for numbers and free text."""
    least: int | None
    """The least value of a count; None where it has none."""

    @property
    def sentence(self) -> str:
        """The meaning as plain text."""
        return self.meaning.replace("``", "")


def filled_help(text: str) -> str:
    """Return a help text in which the help of a setting stands for its key, ``{policies.kv}``, and
    the sentence below a field for its place, ``{app.scenario.mock_options:MockOptions.truth}``."""
    if place := re.fullmatch(r"\{([\w.]+):(\w+)\.(\w+)\}", text):
        return attribute_docs(getattr(import_module(place[1]), place[2]))[place[3]]
    return re.sub(r"\{([a-z_.]+)\}", lambda match: _help(match[1]), text)


def _help(key: str) -> str:
    """Return the sentence of a setting and its choices, without the imports of a scenario."""
    section, _, name = key.rpartition(".")
    kind = get_type_hints(PolicyConfig)[name] if section == "policies" else None
    sentence = _docs(*_SOURCES[section])[name].replace("``", "")
    choices = _choices(key, kind)
    return f"{sentence.rstrip('.')}: {', '.join(choices)}." if choices else sentence


@cache
def setting_docs() -> dict[str, SettingDoc]:
    """Return every setting by its key in a scenario file, such as ``policies.kv`` or ``seed``."""
    from servetwin.app.scenario.files.scenario_file import Limits, ScenarioFile, Workload
    from servetwin.app.scenario.options.deployment import Deployment
    from servetwin.sim.experiments.scenario import ClusterConfig

    sections: dict[str, type] = {
        "": ScenarioFile,
        "workload.": Workload,
        "deployment.": Deployment,
        "policies.": PolicyConfig,
        "cluster.": ClusterConfig,
        "slo.": Limits,
    }
    docs = {}
    for prefix, section in sections.items():
        kinds, meanings = get_type_hints(section), attribute_docs(section)
        for name, default in _defaults(section).items():
            key, kind = prefix + name, kinds[name]
            docs[key] = SettingDoc(
                kind, default, meanings[name], _choices(key, kind), _least(section, name)
            )
    return docs


@cache
def attribute_docs(of: type) -> Mapping[str, str]:
    """Return the strings below the annotated fields of a class and of its bases, by field."""
    names = [base.__module__.partition("servetwin.")[2] for base in reversed(of.__mro__)]
    classes = zip(names, reversed(of.__mro__), strict=True)
    return ChainMap(*(_docs(module, base.__name__) for module, base in classes if module))


@cache
def _docs(module: str, name: str) -> dict[str, str]:
    """Return the strings below the annotated fields of a class in a module, which is not run."""
    tree = ast.parse((_ROOT / f"{module.replace('.', '/')}.py").read_text())
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    docs = {}
    for field, below in pairwise(found.body):
        match field, below:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                docs[name] = " ".join(text.split())
    return docs


def _defaults(section: type[Any]) -> dict[str, Any]:
    if is_dataclass(section):
        return {field.name: field.default for field in fields(section)}
    return {name: field.get_default() for name, field in section.model_fields.items()}


def _least(section: type[Any], name: str) -> int | None:
    """Return the least value of a count, as the class that has it checks it."""
    if is_dataclass(section):
        least: int | None = vars(sys.modules[section.__module__]).get("LEAST", {}).get(name)
        return least
    bounds = section.model_fields[name].metadata
    return next((bound.ge for bound in bounds if hasattr(bound, "ge")), None)


def _choices(key: str, kind: Any) -> tuple[str, ...]:
    """Return the names that a setting may be: of its type, or of the registry that has them."""
    if key == "workload.arrivals":
        return tuple(plain_arrivals())
    if key == "preset":
        return tuple(PRESETS)
    if registry := REGISTRIES.get(key.rpartition(".")[2]):
        return (*registry, "path.py:Class")
    return get_args(kind) if get_origin(kind) is Literal else ()
