"""Named workloads: what a server is used for, with the sources of lengths and rates.

Each is a set of options of ``servetwin workload generate`` (``named.json``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from servetwin.workloads.errors import TraceError, require_name
from servetwin.workloads.program.package import shipped_json


@dataclass(frozen=True, slots=True)
class NamedWorkload:
    """``options`` are those of the generator, by name without dashes, as text."""

    what: str
    source: str
    options: Mapping[str, str]

    def as_arguments(self) -> str:
        """Return the options as they stand on a command line."""
        return " ".join(f"--{name} {value}" for name, value in self.options.items())


NAMED = {
    name: NamedWorkload(**entry)
    for name, entry in shipped_json("workloads/scenarios/named.json").items()
}


def find_named(name: str) -> NamedWorkload:
    """Return a workload by name; raises ``TraceError`` with the nearest one."""
    others = f"there are {', '.join(NAMED)}"
    require_name(name, NAMED, "--named: unknown workload", TraceError, others)
    return NAMED[name]
