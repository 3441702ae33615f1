"""The fields in which two setups differ, by name."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from servetwin.sim.catalogue.frozen_model import FrozenModel
from servetwin.sim.step_times.roofline.formats import Format
from servetwin.sim.techniques.setup import Setup


def changed_fields(before: Setup, after: Setup) -> list[str]:
    """Return the names of the fields that differ, such as ``deployment.kernels.fused``, sorted.

    Members of two tuples of one length share a name (``deployment.model.layers.mixer.kv_heads``).
    Where types or lengths differ, the whole value counts as changed, and a format always does.
    """
    return sorted(set(_changed("", before, after)))


def _changed(name: str, before: object, after: object) -> Iterator[str]:
    if before == after:
        return
    if type(before) is type(after):
        old, new = _members(before), _members(after)
        if old and old.keys() == new.keys():
            for key, value in old.items():
                yield from _changed(f"{name}.{key}".strip("."), value, new[key])
            return
        if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
            for one, other in zip(before, after, strict=True):
                yield from _changed(name, one, other)
            return
    yield name


def _members(value: object) -> Mapping[str, Any]:
    """Return the fields of a dataclass or a model by name; of anything else, none."""
    if isinstance(value, Format):
        return {}
    if isinstance(value, FrozenModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {}
