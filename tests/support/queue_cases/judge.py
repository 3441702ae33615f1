"""Compare what replications measured with the exact values, inside a confidence interval."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from servetwin.sim.experiments.paired_comparison import half_width as student_half_width
from servetwin.workloads.errors import ServetwinError, did_you_mean
from tests.support.queue_cases.batches import BATCHING
from tests.support.queue_cases.case import SelftestCase
from tests.support.queue_cases.losses import LOSSES
from tests.support.queue_cases.many_servers import MANY_SERVERS
from tests.support.queue_cases.networks import NETWORKS
from tests.support.queue_cases.single_server import QUEUE_ORDERS, SINGLE_SERVER

CONFIDENCE = 0.999
IDENTITY_PRECISION = 1e-9
SEED = 20_231


@dataclass(frozen=True, slots=True)
class FigureCheck:
    """One figure of a case, which JSON calls ``scenario``.

    ``half_width`` is that of the two-sided 99.9 % interval.
    """

    scenario: str
    figure: str
    exact: float
    measured: float
    half_width: float
    precision: float

    @property
    def is_precise(self) -> bool:
        """Whether the interval is narrow enough to mean anything."""
        return self.half_width <= self.precision * self.exact

    @property
    def holds(self) -> bool:
        """Whether the exact value lies in a narrow interval around the measured one."""
        margin = max(self.half_width, IDENTITY_PRECISION * self.exact)
        return self.is_precise and abs(self.measured - self.exact) <= margin

    @property
    def verdict(self) -> str:
        """``holds``, ``FAILED``, or ``too wide`` for an interval that is not narrow enough."""
        if self.holds:
            return "holds"
        return "FAILED" if self.is_precise else "too wide"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, for JSON."""
        return {**asdict(self), "holds": self.holds}


def judge(case: SelftestCase, seed: int = SEED) -> Iterator[FigureCheck]:
    """Run a case's replications and compare each of its figures with the exact value.

    Replication r of every case draws from the same child of ``seed``, so that settings which
    differ in one thing meet the same requests.
    """
    streams = np.random.SeedSequence(seed).spawn(case.replications)
    measured = [case.measure(np.random.default_rng(stream)) for stream in streams]
    for figure, exact in case.exact.items():
        values = np.array([replication[figure] for replication in measured])
        yield FigureCheck(
            case.name, figure, exact, float(values.mean()), half_width(values), case.precision
        )


def half_width(values: npt.NDArray[np.float64]) -> float:
    """Return the half width of the interval of the mean (Student's t); 0 for a single value."""
    return student_half_width(values, CONFIDENCE) if len(values) > 1 else 0.0


CASES = {
    case.name: case
    for case in (*SINGLE_SERVER, *QUEUE_ORDERS, *MANY_SERVERS, *BATCHING, *LOSSES, *NETWORKS)
}


class UnknownCase(ServetwinError):
    """No case has that name."""


def cases_named(names: Iterable[str]) -> list[SelftestCase]:
    """Return the cases with these names, or all; raise ``UnknownCase`` with the nearest name."""
    return [_find(name) for name in names] or list(CASES.values())


def judge_named(name: str) -> list[FigureCheck]:
    """Judge the case of a name; a process pool can pickle the call."""
    return list(judge(_find(name)))


def _find(name: str) -> SelftestCase:
    if name in CASES:
        return CASES[name]
    raise UnknownCase(f"--only: no scenario {name!r}; {did_you_mean(name, CASES)}")
