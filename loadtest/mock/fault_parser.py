"""Reads faults and plans: ``NAME:KEY=VALUE,...`` on the command line, or a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from loadtest.mock.faults import FAULTS, Fault
from loadtest.mock.plan import MockPlan
from sim.shapes.frozen_model import FrozenModel
from workloads.errors import MockError, did_you_mean
from workloads.key_values import key_values
from workloads.plugins import split_settings

_Part = TypeVar("_Part", bound=FrozenModel)


def parse_fault(text: str, where: str = "--fault") -> Fault:
    """Read a fault: its name, and its settings after a colon (``cut:every=2,after=8``).

    Raises ``MockError`` naming ``where``, the part that is wrong and what is valid.
    """
    name, settings = split_settings(text)
    return build_fault(name, key_values(settings, f"{where} {name}", MockError), where)


def build_fault(name: str, settings: Mapping[str, Any], where: str) -> Fault:
    """Make a fault of its name and settings. Raises ``MockError``."""
    if name not in FAULTS:
        hint = did_you_mean(name, FAULTS, f"known are {', '.join(FAULTS)}")
        raise MockError(f"{where}: unknown fault {name!r}; {hint}")
    return _build(FAULTS[name], settings, f"{where} {name}")


def read_plan(path: Path | None, given: Mapping[str, Any]) -> MockPlan:
    """Read the plan in a YAML or JSON file; the options ``given`` replace its fields.

    The file has the fields of ``MockPlan``; a fault in it is a text as on the command line, or a
    mapping with its ``name`` and settings. The faults of both are joined. Raises ``MockError``
    naming the file and key.
    """
    fields = _fields(path) if path else {}
    where = str(path) if path else "--mock"
    listed = fields.pop("faults", [])
    if not isinstance(listed, list):
        raise MockError(f"{where}: faults: a list is expected")
    faults = (*(_listed(fault, where) for fault in listed), *given.get("faults", ()))
    return _build(MockPlan, {**fields, **given, "faults": faults}, where)


def _fields(path: Path) -> dict[str, Any]:
    try:
        fields = yaml.safe_load(path.read_text())
    except OSError as error:
        raise MockError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise MockError(f"{path}: neither YAML nor JSON ({reason})") from error
    if not isinstance(fields, dict):
        raise MockError(f"{path}: a mapping with {', '.join(MockPlan.model_fields)} is expected")
    return fields


def _listed(fault: Any, where: str) -> Fault:
    if isinstance(fault, str):
        return parse_fault(fault, where)
    if isinstance(fault, dict) and isinstance(fault.get("name"), str):
        settings = {key: value for key, value in fault.items() if key != "name"}
        return build_fault(fault["name"], settings, where)
    raise MockError(f"{where}: faults: {fault!r} is neither a text nor a mapping with a name")


def _build(kind: type[_Part], settings: Mapping[str, Any], where: str) -> _Part:
    for key in settings:
        if key not in kind.model_fields:
            takes = ", ".join(kind.model_fields) or "none"
            hint = did_you_mean(str(key), kind.model_fields, f"known are {takes}")
            raise MockError(f"{where}: unknown key {key!r}; {hint}")
    try:
        return kind(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise MockError(f"{where}: {key}: {first['input']!r}: {first['msg']}") from error
