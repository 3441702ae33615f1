"""The speed of the endpoint's machine, measured before and after each load test.

A pulse is a fixed burst of short requests, sent a few times; its figure is the median time per
output token. A machine whose pulses differ from those at calibration time is no longer the machine
that was calibrated, and a load test on it says nothing about the profile. The median of the pulses
counts: what disturbs the machine for a moment only is in the spread of the load tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from servetwin.app.calibration.calibrator import AT_ONCE, Calibrator
from servetwin.app.verdict.claims import DEFAULT_LIMITS
from servetwin.loadtest.run.client import run_load_test
from servetwin.workloads.request import Request
from servetwin.workloads.trace import Trace

DRIFT_LIMIT = DEFAULT_LIMITS["tpot_s.mean"]
"""A change of speed that makes a verdict impossible: the limit on TPOT."""

_BURST = tuple(Request(f"pulse-{number}", 0.0, 24, 24) for number in range(8))
_BURSTS = 3
_BASELINE_PULSES = 3


@dataclass(slots=True)
class Pulses:
    """Takes pulses of one endpoint; no two have the same prompts."""

    calibrator: Calibrator
    bursts: int = 0

    def take_s(self) -> float:
        """Return the median time per output token of the bursts, in seconds."""
        return median(self._burst_s() for _ in range(_BURSTS))

    def baseline_s(self) -> float:
        """Return the median of several pulses."""
        return median(self.take_s() for _ in range(_BASELINE_PULSES))

    def _burst_s(self) -> float:
        self.bursts += 1
        endpoint = self.calibrator.endpoint.salted("pulse", self.bursts)
        trace = self.calibrator.as_counted(Trace(_BURST, "pulse"))
        run = run_load_test(endpoint, trace, options=AT_ONCE)
        return float(run.requests["tpot_s"].median())


def drift_doubt(baseline_s: float, pulses_s: Sequence[float]) -> str | None:
    """Return why the load tests between the pulses say nothing about the profile, or None."""
    if not pulses_s or baseline_s <= 0:
        return None
    drift = median(pulses_s) / baseline_s - 1
    if abs(drift) <= DRIFT_LIMIT:
        return None
    return (
        f"the machine drifted: a fixed burst was {100 * drift:+.0f} % off its time at calibration "
        f"(limit {100 * DRIFT_LIMIT:.0f} %); end other programs, or use a machine of its own"
    )
