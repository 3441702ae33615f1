"""From names to a setup on data sheets: model, hardware, techniques, efficiencies."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.toggles import Toggles
from servetwin.workloads.errors import PolicyError, did_you_mean
from servetwin.workloads.key_values import key_values

_MOST = 1e6
_EFFICIENCIES = tuple(f.name for f in fields(Efficiency))


def build_setup(
    model: str,
    hardware: str,
    techniques: Iterable[str] = (),
    efficiency: Mapping[str, Any] | None = None,
    without: Iterable[str] = (),
) -> Setup:
    """Return the setup of these names, its policies those of a roofline server.

    Of the techniques that the server has by itself, it lacks ``without``. Raises
    ``ServetwinError`` that names what is unknown or does not fit together.
    """
    achieved = with_efficiency(Efficiency(), efficiency or {})
    deployment = Deployment(find_model(model), find_hardware(hardware), achieved)
    return Toggles.of(techniques, without).over(Setup.of(deployment))


def with_efficiency(efficiency: Efficiency, changes: Mapping[str, Any]) -> Efficiency:
    """Return ``efficiency`` with fields changed; raise ``PolicyError`` that names a wrong one."""
    for name, value in changes.items():
        if name not in _EFFICIENCIES:
            hint = did_you_mean(name, _EFFICIENCIES)
            raise PolicyError(f"efficiency: unknown {name!r}; {hint}")
        _require(name, value)
    return replace(efficiency, **{name: float(value) for name, value in changes.items()})


def parse_efficiency(text: str) -> dict[str, str]:
    """Parse ``compute=0.7,memory=0.85`` into values by name."""
    return key_values(text, "efficiency", form="NAME=VALUE")


def _require(name: str, value: Any) -> None:
    at_most_1 = name in ("compute", "memory")
    least = 1.0 if name == "knee" else 0.0
    right = "above 0 and at most 1" if at_most_1 else f"from {least:g} to {_MOST:g}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise PolicyError(f"efficiency: {name}: {value!r} is not a number") from None
    if not (0 < number <= 1 if at_most_1 else least <= number <= _MOST):
        raise PolicyError(f"efficiency: {name}: {number:g} is not possible; it must be {right}")
