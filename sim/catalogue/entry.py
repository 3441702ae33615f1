"""An entry of the catalogue: immutable, validated, and refused with the field that is wrong."""

from collections.abc import Iterator, Mapping
from reprlib import repr as shortened
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from servetwin.workloads.errors import PolicyError, did_you_mean, require_name
from servetwin.workloads.plugins import split_settings
from servetwin.workloads.program.key_values import MOST_NUMBER, key_values
from servetwin.workloads.program.package import shipped_json


class FrozenModel(BaseModel):
    """An immutable entry of a file: validated, without unknown fields, every number finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


Entry = TypeVar("Entry", bound=FrozenModel)
Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0, le=MOST_NUMBER)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


# Units of fields, by their names and by the endings of their names.
_UNITS: dict[str, dict[str, str]] = shipped_json("sim/catalogue/units.json")
_UNIONS = ("mixer", "ffn")
_MAP_KEY = "[key]"
_CATALOGUE = __name__.rpartition(".")[0]


def _unit_of(field: str) -> str | None:
    """Return the unit of a field, by its name; None where it has none."""
    by_ending = (unit for end, unit in _UNITS["by_ending"].items() if field.endswith(end))
    return _UNITS["by_name"].get(field) or next(by_ending, None)


def first_problem(error: ValidationError) -> str:
    """Return the first problem, such as ``field 'memory_bytes' (bytes): -3 is not possible``."""
    problem = error.errors(include_url=False)[0]
    path = list(_path(problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"field {_joined(path)!r} is not known; {_nearest(str(path[-1]))}"
    units = (_unit_of(part) for part in reversed(path) if isinstance(part, str))
    unit = next((f" ({unit})" for unit in units if unit), "")
    field = f"field {_joined(path)!r}{unit}" if path else "the entry"
    return f"{field}{_complaint(problem)}"


def _path(location: tuple[int | str, ...]) -> Iterator[int | str]:
    """Yield the names and indices that a user wrote, without the tags that pydantic inserts."""
    for before, part, after in zip(("", *location), location, (*location[1:], ""), strict=False):
        if before not in _UNIONS and _MAP_KEY not in (part, after):
            yield part


def _joined(path: list[int | str]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _nearest(name: str) -> str:
    kinds, known = [FrozenModel], set[str]()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__module__.startswith(_CATALOGUE):
            known |= kind.model_fields.keys()
    return did_you_mean(name, sorted(known), "leave it out")


def _complaint(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    match problem["type"]:
        case "missing":
            return " is missing; it must be given"
        case "too_short":
            return ": it must have at least one entry"
        case "union_tag_not_found":
            return ": its 'kind' is missing"
        case "union_tag_invalid":
            return f": kind {context['tag']!r} is not known; it must be {context['expected_tags']}"
        case "value_error":
            return f": {context['error']}"
    value, right = shortened(problem["input"]), problem["msg"].replace("Input should", "it must")
    return f": {value} is not possible; {right[0].lower()}{right[1:]}"


def parse_entry(text: str, kinds: Mapping[str, type[Entry]], where: str, what: str) -> Entry:
    """Read an entry that is written ``NAME:KEY=VALUE,KEY=VALUE``; ``kinds`` are its classes.

    Raises ``PolicyError`` that names ``where``, the part that is wrong and what would be right.
    """
    name, settings = split_settings(text)
    require_name(name, kinds, f"{where}: unknown {what}", PolicyError)
    where = f"{where}: {name}"
    return made_entry(kinds[name], key_values(settings, where), where)


def made_entry(kind: type[Entry], given: Mapping[str, Any], where: str) -> Entry:
    """Return an entry of its fields, which may be texts; raises as ``parse_entry`` does."""
    for key in given:
        known = f"known are {', '.join(kind.model_fields) or 'none'}"
        require_name(key, kind.model_fields, f"{where}: unknown key", PolicyError, known)
    try:
        return kind(**given)  # pydantic reads numbers in texts
    except ValidationError as error:
        raise PolicyError(f"{where}: {first_problem(error)}") from None
