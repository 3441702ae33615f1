"""The speed of the endpoint's machine, measured before and after each load test.

A pulse is a fixed burst of short requests; its figure is the median time per output token. A
machine whose pulse differs from the one at calibration time is no longer the machine that was
calibrated, and a load test on it says nothing about the profile.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.twin.calibrator import Calibrator
from loadtest.run.client import LoadOptions, run_load_test
from sim.records.run import Run
from workloads.request import Request
from workloads.trace import Trace

DRIFT_LIMIT = 0.05
"""A change of speed that makes a verdict impossible: the limit on TPOT."""

_BURST = tuple(Request(f"pulse-{number}", 0.0, 24, 24) for number in range(8))
_BASELINE_PULSES = 3
_AT_ONCE = LoadOptions(lead_s=0.02)


@dataclass(slots=True)
class Pulses:
    """Takes pulses of one endpoint; no two have the same prompts."""

    calibrator: Calibrator
    salt: int = 1_000_000

    def take_s(self) -> float:
        """Return the median time per output token of a burst, in seconds."""
        self.salt += 1
        endpoint = replace(self.calibrator.endpoint, salt=self.salt)
        trace = self.calibrator.as_counted(Trace(_BURST, "pulse"))
        return _median_tpot_s(run_load_test(endpoint, trace, options=_AT_ONCE))

    def baseline_s(self) -> float:
        """Return the median of several pulses."""
        return sorted(self.take_s() for _ in range(_BASELINE_PULSES))[_BASELINE_PULSES // 2]


def drift_doubt(baseline_s: float, pulses_s: Sequence[float]) -> str | None:
    """Return why the load tests between the pulses say nothing about the profile, or None."""
    drifts = [pulse_s / baseline_s - 1 for pulse_s in pulses_s if baseline_s > 0]
    most = max(drifts, key=abs, default=0.0)
    if abs(most) <= DRIFT_LIMIT:
        return None
    return (
        f"the machine drifted: a fixed burst was {100 * most:+.0f} % off its time at calibration "
        f"(limit {100 * DRIFT_LIMIT:.0f} %); end other programs, or use a machine of its own"
    )


def _median_tpot_s(run: Run) -> float:
    return float(run.requests["tpot_s"].median())
