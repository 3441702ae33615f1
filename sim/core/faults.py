"""What goes wrong in a fleet, as planned: replicas that crash, or slow down.

A fault is written as one of a mock endpoint (``loadtest.mock``): its name, then its settings, as
``crash:replica=3,at_s=600,for_s=120``. ``at_s`` is on the clock of the trace.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Annotated

from pydantic import Field

from servetwin.sim.catalogue.entry import FrozenModel, NotNegative, Positive, parse_entry
from servetwin.workloads.errors import PolicyError


class Fault(FrozenModel):
    """What happens to a replica from ``at_s`` on, for ``for_s`` or to the end."""

    replica: Annotated[int, Field(ge=0)]
    at_s: NotNegative
    for_s: Positive | None = None

    @property
    def end_s(self) -> float:
        """When it is over."""
        return inf if self.for_s is None else self.at_s + self.for_s


class Crash(Fault):
    """The replica loses all that it holds; back after ``for_s``, its caches are cold."""


class Partition(Fault):
    """Nothing gets from the gateway to the replica or back; the replica goes on."""


class Slow(Fault):
    """The steps that the replica begins take ``factor`` times as long."""

    factor: Positive = 2.0


FAULTS: dict[str, type[Fault]] = {"crash": Crash, "partition": Partition, "slow": Slow}


def parse_faults(text: str, where: str = "faults") -> tuple[Fault, ...]:
    """Read faults between spaces or line ends; what follows a ``#`` is a remark.

    Raises ``PolicyError`` that names ``where``, the fault and the key, also for two faults of one
    replica at a time.
    """
    words = (word for line in text.splitlines() for word in line.partition("#")[0].split())
    faults = tuple(parse_entry(word, FAULTS, where, "fault") for word in words)
    ordered = sorted(faults, key=lambda fault: (fault.replica, fault.at_s))
    for one, following in pairwise(ordered):
        if one.replica == following.replica and following.at_s <= one.end_s:
            ends = "never ends" if one.for_s is None else f"lasts until {one.end_s:g} s"
            raise PolicyError(
                f"{where}: replica {one.replica}: the fault at {one.at_s:g} s {ends}, and the next "
                f"begins at {following.at_s:g} s; let it begin later, or give for_s"
            )
    return faults


def require_survivors(faults: Sequence[Fault], replicas: int, replaced: bool) -> None:
    """Raise ``PolicyError`` for a replica that is not there, and where none is left at the end.

    ``replaced`` says whether others are started in place of those that never come back.
    """
    for fault in faults:
        if fault.replica >= replicas:
            raise PolicyError(
                f"faults: replica {fault.replica}: there are replicas 0 to {replicas - 1}"
            )
    gone = {one.replica for one in faults if one.for_s is None and not isinstance(one, Slow)}
    if len(gone) == replicas and not replaced:
        raise PolicyError(
            "faults: every replica crashes or is cut off, and none is back; give for_s, for how "
            f"long, or more than {replicas} replicas"
        )
