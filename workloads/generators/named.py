"""Named workloads: what a server is used for, with the sources of lengths and rates.

Each is a set of options of ``servetwin workload generate`` (``named.json``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from servetwin.workloads.errors import TraceError, did_you_mean


@dataclass(frozen=True, slots=True)
class NamedWorkload:
    """``options`` are those of the generator, by name without dashes, as text."""

    what: str
    source: str
    options: Mapping[str, str]

    def as_arguments(self) -> str:
        """Return the options as they stand on a command line."""
        return " ".join(f"--{name} {value}" for name, value in self.options.items())


_FILE = resources.files("servetwin.workloads").joinpath("scenarios/named.json")
NAMED = {name: NamedWorkload(**entry) for name, entry in json.loads(_FILE.read_text()).items()}


def find_named(name: str) -> NamedWorkload:
    """Return a workload by name; raises ``TraceError`` with the nearest one."""
    if name in NAMED:
        return NAMED[name]
    hint = did_you_mean(name, NAMED, f"there are {', '.join(NAMED)}")
    raise TraceError(f"--named: unknown workload {name!r}; {hint}")
