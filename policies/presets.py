"""Named bundles of policies that imitate known servers, each with its source (``presets.json``).

A preset sets policies, not sizes: memory, batch size and model length stay those of the profile,
but for the limits that are part of the imitated design. Speed is that of the profile too, but for
``kernels`` on data sheets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from servetwin.workloads.errors import PolicyError, require_name
from servetwin.workloads.program.package import shipped_json


@dataclass(frozen=True, slots=True)
class Preset:
    """``policies`` are settings of ``PolicyConfig``, ``cluster`` those of ``ClusterConfig``.

    ``kernels``: "eager" where the server runs layer by layer from Python. ``copy_of``: the preset
    that gives the same figures.
    """

    imitates: str
    source: str
    policies: Mapping[str, Any]
    cluster: Mapping[str, Any] = field(default_factory=dict)
    kernels: Literal["fused", "eager"] = "fused"
    copy_of: str | None = None


PRESETS = {name: Preset(**entry) for name, entry in shipped_json("policies/presets.json").items()}


def find_preset(name: str) -> Preset:
    """A preset by its name.

    Raises ``PolicyError`` with the nearest known name.
    """
    require_name(name, sorted(PRESETS), "preset: unknown preset", PolicyError)
    return PRESETS[name]
