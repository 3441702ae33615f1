"""The flags of a server: which setting each gives, and which do not change a simulation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Self

from servetwin.sim.catalogue.entry import shipped_json
from servetwin.workloads.errors import PolicyError, did_you_mean

Pairs = list[tuple[str, str]]
"""Flags, without dashes, and their values; a switch is ``true`` or ``false``."""

_FILE: dict[str, dict[str, Any]] = shipped_json("catalogue/servers/flags.json")
BACKENDS = tuple(_FILE)


@dataclass(frozen=True)
class Flags:
    """The flags of one server, in the spelling of its Python fields."""

    backend: str
    commands: list[str]
    aliases: Mapping[str, str]
    settings: Mapping[str, str]
    switches: list[str]
    not_simulated: Mapping[str, str]
    silent: list[str]
    weights: Mapping[str, Mapping[str, str]]
    source: str
    image: str
    """The container image of the server, without a version."""

    @classmethod
    @cache
    def of(cls, backend: str) -> Self:
        """Return the flags of ``vllm``, ``sglang`` or ``trtllm``."""
        return cls(backend, **_FILE[backend])

    def name(self, flag: str) -> str:
        """Return the field that a flag such as ``--tp-size`` or ``-tp`` sets."""
        name = flag.lstrip("-").replace("-", "_")
        return self.aliases.get(name, name)

    def is_switch(self, name: str) -> bool:
        """Return whether a flag takes no value."""
        return name != "disable_access_log_for_endpoints" and matches(name, self.switches)

    def words(self, roles: Mapping[str, int | None]) -> list[str]:
        """Return the words of a command line that give each role its number; None is a switch."""
        flags = {role: _dashed(name) for name, role in self.settings.items()}
        each = ([flags[role], *([] if n is None else [str(n)])] for role, n in roles.items())
        return [word for words in each for word in words]

    def knows(self, name: str) -> bool:
        """Return whether the server has a flag."""
        named = name in self.settings or name in self.not_simulated
        return named or matches(name, self.silent)

    def require_known(self, name: str) -> None:
        """Raise ``PolicyError`` for a flag that the server does not have, with the nearest one."""
        if not self.knows(name) and not self.knows(name.removeprefix("no_")):
            plain = [flag for flag in self.silent if "*" not in flag]
            known = [*self.settings, *self.not_simulated, *self.aliases, *plain]
            hint = did_you_mean(_dashed(name), map(_dashed, known), "leave it out")
            raise PolicyError(f"--server: {self.backend} has no flag {_dashed(name)!r}; {hint}")

    def roles(self, pairs: Pairs) -> Iterator[tuple[str, str, str]]:
        """Yield (role, flag, value) of the flags that matter, ``ignored`` for one not simulated."""
        for name, value in pairs:
            if name not in self.not_simulated and name.startswith("no_"):
                name, value = name.removeprefix("no_"), "false"
            if name == "enable_chunked_prefill" and is_off(value):
                name, value = f"no_{name}", "true"
            if name in self.settings:
                yield self.settings[name], _dashed(name), value
            elif name in self.not_simulated and not is_off(value) and value != "1":
                yield "ignored", _dashed(name), self.not_simulated[name]


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether a name is one of the patterns, where ``*`` stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_off(value: str) -> bool:
    """Return whether a value leaves a feature off."""
    return value.lower() in ("false", "none", "null", "", "0", "{}")


def _dashed(name: str) -> str:
    return "--" + name.replace("_", "-")
