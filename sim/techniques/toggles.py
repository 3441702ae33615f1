"""Which techniques are on and which are off: one definition for every command."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from servetwin.sim.techniques.registry import TECHNIQUES, apply_all, find_technique
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique
from servetwin.workloads.errors import PolicyError


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
        found = cls(tuple(map(find_technique, on)), tuple(map(find_technique, off)))
        _require_named_once(found.on, "technique")
        _require_named_once(found.off, "without")
        names = {technique.name for technique in found.off}
        for technique in found.on:
            if technique.name in names:
                raise PolicyError(
                    f"technique {technique.name}: both on (--technique) and off (--without); keep "
                    "one of them"
                )
        _require_compatible(found.on)
        return found

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
        return apply_all(self.on, setup)

    def notes(self, setup: Setup, given: Mapping[str, Any]) -> list[str]:
        """Return what a user should know: a technique that changes nothing, a setting that is lost.

        ``given`` are the settings of policies that the user has chosen.
        """
        found = []
        for technique in self.off:
            after = technique.off(setup)
            if after == setup:
                name = technique.name
                found.append(f"{name} is not on here: --without {name} changes nothing")
            found += _overridden(f"--without {technique.name}", setup, after, given)
            setup = after
        for technique in self.on:
            name = technique.name
            if technique.is_on(setup):
                remedy = f"; --without {name} takes it away"
                can_go = technique.off(setup) != setup
                found.append(f"{name} is on here already{remedy if can_go else ''}")
            if said := technique.note(setup):
                found.append(f"{name}: {said}")
            after = technique.apply(setup)
            found += _overridden(f"--technique {name}", setup, after, given)
            setup = after
        return found


def names_on(setup: Setup) -> list[str]:
    """Return the shipped techniques that ``setup`` has, at their default parameters."""
    return [name for name, technique in TECHNIQUES.items() if technique().is_on(setup)]


def _overridden(option: str, before: Setup, after: Setup, given: Mapping[str, Any]) -> list[str]:
    old, new = before.policies, after.policies
    return [
        f"{option} sets {key} to {getattr(new, key)!r} in place of {getattr(old, key)!r}"
        for key in given
        if getattr(new, key) != getattr(old, key)
    ]


def _require_named_once(techniques: Iterable[Technique], option: str) -> None:
    seen = set()
    for technique in techniques:
        if technique.name in seen:
            raise PolicyError(f"--{option}: {technique.name} is named twice; name it once")
        seen.add(technique.name)


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
