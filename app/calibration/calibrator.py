"""What a verification needs of a calibration, however the calibration learns the step times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.run.client import LoadOptions
from servetwin.policies.step_record import StepRecord
from servetwin.sim.experiments.capacity import saturation_rate_per_s
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace

LOAD_UTILISATION = 0.85
# Share of the capacity that the load of a calibration round offers, and its length in seconds.
# Bursts of chosen shapes are not the load that a forecast will meet: a server that also receives
# requests and sends tokens may compute the same batch more slowly. So each round ends with a load
# of other requests with the lengths of the trace, near the capacity that is known by then.
LOAD_S = 10.0
# The fewest and the most requests of such a load.
LOAD_REQUESTS = (20, 400)


def load_rate_per_s(trace: Trace, profile: Profile) -> float:
    """Return the rate of a representative load: near the capacity that is known by now."""
    return LOAD_UTILISATION * saturation_rate_per_s(trace, profile.policy_config(), profile)


def representative_load(
    trace: Trace, rate_per_s: float, seconds: float, rng: np.random.Generator
) -> Trace:
    """Return a Poisson load of other requests whose lengths and prefixes are drawn from ``trace``.

    It lasts about ``seconds``, within ``LOAD_REQUESTS``. No follow-up waits for its parent.
    """
    fewest, most = LOAD_REQUESTS
    count = int(np.clip(rate_per_s * seconds, fewest, most))
    arrivals_s = np.cumsum(rng.exponential(1 / rate_per_s, count))
    tag = int(rng.integers(1 << 62))  # new names: prompts that no prefix cache has seen
    requests = [
        replace(
            trace.requests[int(row)], request_id=f"load-{tag}-{number}", arrival_s=float(at_s),
            parent_ids=(), delay_s=None,
        )
        for number, (row, at_s) in enumerate(
            zip(rng.integers(len(trace), size=count), arrivals_s, strict=True)
        )
    ]  # fmt: skip
    return Trace(tuple(requests), "calibration load")


# A burst: all its requests are due at once, and sent with hardly a lead.
AT_ONCE = LoadOptions(lead_s=0.02)

# Takes one line on what is being done.
ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The step log of a server, on its own clock."""

    clock_zero_s: float
    steps: Sequence[StepRecord]


class Calibrator(Protocol):
    """Learns the step times of one endpoint."""

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that is measured."""

    @property
    def stopped(self) -> str | None:
        """Why no further round can run (Ctrl-C, an endpoint that is gone); None while one can."""

    def identify(self, rounds: int, trace: Trace) -> None:
        """Learn all that a forecast of ``trace`` needs, with ``rounds`` rounds."""

    def profile(self, name: str = "calibrated") -> Profile:
        """Fit all rounds so far.

        ``engine["identified"]`` of the profile has the limits and notes, where policies had to be
        identified. Raises ``ProfileError`` where the rounds show too few steps.
        """

    def as_counted(self, trace: Trace) -> Trace:
        """The trace to send so that the server counts the prompt lengths of ``trace``."""

    def server_log(self) -> ServerLog | None:
        """Return the step log of the server so far; None without one that can be read."""

    def check_decisions(self) -> DecisionCheck | None:
        """Compare the simulator's batches with those of the step log; None without a step log."""
