"""What a verification needs of a calibration, however the calibration learns the step times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.run.client import LoadOptions
from servetwin.policies.sequence import Sequence as ServerSequence
from servetwin.policies.step_record import StepRecord
from servetwin.sim.experiments.decision_check import DecisionCheck
from servetwin.sim.step_times.profile import Profile
from servetwin.workloads.trace import Trace

AT_ONCE = LoadOptions(lead_s=0.02)
"""A burst: all its requests are due at once, and sent with hardly a lead."""

ReportProgress = Callable[[str], None]
"""Takes one line on what is being done."""


@dataclass(frozen=True, slots=True)
class ServerLog:
    """The step log of a server: arrivals at its scheduler and steps, on its own clock."""

    clock_zero_s: float
    arrivals: Sequence[ServerSequence]
    steps: Sequence[StepRecord]


class Calibrator(Protocol):
    """Learns the step times of one endpoint."""

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that is measured."""
        ...

    @property
    def policy_name(self) -> str | None:
        """Name of the policies that the endpoint states; None where they must be identified."""
        ...

    @property
    def stopped(self) -> str | None:
        """Why no further round can run (Ctrl-C, an endpoint that is gone); None while one can."""
        ...

    def identify(self, rounds: int, trace: Trace) -> None:
        """Learn all that a forecast of ``trace`` needs, with ``rounds`` rounds."""

    def profile(self, name: str = "calibrated") -> Profile:
        """Fit all rounds so far.

        ``engine["identified"]`` of the profile has the limits and notes, where policies had to be
        identified. Raises ``ProfileError`` where the rounds show too few steps.
        """
        ...

    def as_counted(self, trace: Trace) -> Trace:
        """The trace to send so that the server counts the prompt lengths of ``trace``."""
        ...

    def server_log(self) -> ServerLog | None:
        """Return the step log of the server so far; None without one that can be read."""
        ...

    def check_decisions(self) -> DecisionCheck | None:
        """Compare the simulator's batches with those of the step log; None without a step log."""
        ...
