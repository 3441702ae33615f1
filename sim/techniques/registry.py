"""Find a technique by name, with its parameters: ``tensor-parallel:ways=4,latency_us=5``."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import ValidationError

from servetwin.sim.catalogue.catalogue import find_hardware, find_model
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import USUAL, Efficiency, served_efficiency
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import SHIPPED, Technique
from servetwin.workloads.errors import PluginError, PolicyError, require_name
from servetwin.workloads.plugins import Registry, split_settings
from servetwin.workloads.program.key_values import key_values, number_in

TECHNIQUES: Registry[Technique] = Registry(
    "technique",
    "technique",
    f"{Technique.__module__}:{Technique.__name__}",
    "**parameters",
    SHIPPED,
)


def find_technique(text: str) -> Technique:
    """Return a technique by name or ``path.py:Class``, its parameters after a colon.

    Raises ``PolicyError`` that names the technique, the parameter and what would be right, and
    ``PluginError`` for a class that cannot be used.
    """
    name, given = split_settings(text)
    fields = TECHNIQUES.find(name).model_fields
    parameters = key_values(given, f"technique {name}")
    for key in parameters:
        others = f"its parameters: {', '.join(fields) or 'none'}"
        require_name(key, fields, f"technique {name}: unknown parameter", PolicyError, others)
    return _with_parameters(name, parameters)


def _with_parameters(name: str, parameters: dict[str, str]) -> Technique:
    try:
        return TECHNIQUES.build(name, **parameters)
    except (PluginError, ValidationError) as error:
        invalid = error.__cause__ if isinstance(error, PluginError) else error
        if not isinstance(invalid, ValidationError):
            raise
        first = invalid.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "parameters"
        raise PolicyError(
            f"technique {name}: {key}: {first['msg'].removeprefix('Value error, ')}"
        ) from error


@dataclass(frozen=True, slots=True)
class Toggles:
    """Techniques that are taken away from a server (``off``), then those that it gets (``on``)."""

    on: tuple[Technique, ...] = ()
    off: tuple[Technique, ...] = ()

    @classmethod
    def of(cls, on: Iterable[str], off: Iterable[str] = ()) -> "Toggles":
        """Return the techniques of these texts.

        Raises ``PolicyError`` for one that is unknown, named twice, both on and off, or excluded
        by another.
        """
        toggles = cls(tuple(map(find_technique, on)), tuple(map(find_technique, off)))
        _require_named_once(toggles.on, "technique")
        _require_named_once(toggles.off, "without")
        names = {technique.name for technique in toggles.off}
        for technique in toggles.on:
            if technique.name in names:
                raise PolicyError(
                    f"technique {technique.name}: both on (--technique) and off (--without); keep "
                    "one of them"
                )
        _require_compatible(toggles.on)
        return toggles

    def is_empty(self) -> bool:
        """Return whether no technique is on or off."""
        return not (self.on or self.off)

    def beside(self, technique: Technique) -> "Toggles":
        """Return the other techniques that are on and off, for one to be tried on them.

        Raises ``PolicyError`` where one of them excludes it.
        """
        on, off = (
            tuple(other for other in others if other.name != technique.name)
            for others in (self.on, self.off)
        )
        _require_compatible((*on, technique))
        return Toggles(on, off)

    def over(self, setup: Setup) -> Setup:
        """Return ``setup`` with the techniques off and on, in the order given."""
        for technique in self.off:
            setup = technique.off(setup)
        for technique in self.on:
            setup = technique.apply(setup)
        return setup

    def notes(self, setup: Setup, given: Mapping[str, Any]) -> list[str]:
        """Return what a user should know: a technique that changes nothing, a setting that is lost.

        ``given`` are the settings of policies that the user has chosen.
        """
        notes = []
        for technique in self.off:
            after = technique.off(setup)
            if after == setup:
                name = technique.name
                notes.append(f"{name} is not on here: --without {name} changes nothing")
            notes += _overridden(f"--without {technique.name}", setup, after, given)
            setup = after
        for technique in self.on:
            name = technique.name
            if technique.is_on(setup):
                remedy = f"; --without {name} takes it away"
                can_go = technique.off(setup) != setup
                notes.append(f"{name} is on here already{remedy if can_go else ''}")
            if note := technique.note(setup):
                notes.append(f"{name}: {note}")
            after = technique.apply(setup)
            notes += _overridden(f"--technique {name}", setup, after, given)
            setup = after
        return notes


def _overridden(option: str, before: Setup, after: Setup, given: Mapping[str, Any]) -> list[str]:
    old, new = before.policies, after.policies
    return [
        f"{option} sets {key} to {getattr(new, key)!r} in place of {getattr(old, key)!r}"
        for key in given
        if getattr(new, key) != getattr(old, key)
    ]


def _require_named_once(techniques: Iterable[Technique], option: str) -> None:
    for name, times in Counter(technique.name for technique in techniques).items():
        if times > 1:
            raise PolicyError(f"--{option}: {name} is named twice; name it once")


def _require_compatible(techniques: Iterable[Technique]) -> None:
    chosen: dict[str, str] = {}
    for technique in techniques:
        what = technique.chooses
        if what is None:
            continue
        if what in chosen:
            raise PolicyError(
                f"techniques {chosen[what]} and {technique.name} exclude each other: both choose "
                f"{what}; keep one of them"
            )
        chosen[what] = technique.name


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

    Without an ``efficiency`` it is that of the usual server on the device. Of the techniques that
    the server has by itself, it lacks ``without``. Raises ``ServetwinError`` that names what is
    unknown or does not fit together.
    """
    device = find_hardware(hardware)
    given = with_efficiency(Efficiency(), efficiency) if efficiency else None
    achieved = given or served_efficiency(USUAL, device.name)
    deployment = Deployment(find_model(model), device, achieved)
    return Toggles.of(techniques, without).over(Setup.of(deployment))


def with_efficiency(efficiency: Efficiency, changes: Mapping[str, Any]) -> Efficiency:
    """Return ``efficiency`` with fields changed; raise ``PolicyError`` that names a wrong one."""
    for name, value in changes.items():
        require_name(name, _EFFICIENCIES, "efficiency: unknown", PolicyError)
        _require(name, value)
    return replace(efficiency, **{name: float(value) for name, value in changes.items()})


def parse_efficiency(text: str) -> dict[str, str]:
    """Parse ``compute=0.7,memory=0.85`` into values by name."""
    return key_values(text, "efficiency", form="NAME=VALUE")


def _require(name: str, value: Any) -> None:
    at_most_1 = name in ("compute", "memory", "attention", "experts")
    least = 1.0 if name == "knee" else 0.0
    right = "above 0 and at most 1" if at_most_1 else f"from {least:g} to {_MOST:g}"
    number = number_in(str(value))
    if not (0 < number <= 1 if at_most_1 else least <= number <= _MOST):
        raise PolicyError(f"efficiency: {name}: {value} is not possible; it must be {right}")
