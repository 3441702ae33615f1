"""The model of a server: step times and API latency of a profile, of tables, or of a roofline."""

from typing import Protocol

import numpy as np

from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVLayout
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.origin import Origin
from servetwin.sim.step_times.step_time import ApiLatency, NoiseSample, StepTime


class StepTimeSource(Protocol):
    """Step times and their uncertainty."""

    def model(self) -> StepTime:
        """Return the best estimate."""

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """Return a draw from the uncertainty of the estimate."""

    def noise_factors(self) -> NoiseSample:
        """Return a sample of factors on the durations of single steps, and their correlation."""

    def is_certain(self) -> bool:
        """Return whether all draws are equal."""


class ApiLatencySource(Protocol):
    """The latency between client and scheduler."""

    def model(self) -> ApiLatency:
        """Return the latency as the simulator uses it."""


class ServerModel(Protocol):
    """One engine on one machine."""

    @property
    def name(self) -> str:
        """Name in reports."""

    @property
    def origin(self) -> Origin:
        """Where the step times come from, or most of them."""

    def describe(self) -> list[str]:
        """Return lines of a report: what the server is, and where its figures come from."""

    @property
    def api(self) -> ApiLatencySource:
        """Latency of the HTTP process."""

    @property
    def acceptance(self) -> Acceptance | None:
        """Distribution of accepted drafts; None without drafts."""

    def step_time(self, layout: KVLayout) -> StepTimeSource:
        """Return the step times for a KV layout; raises ``ProfileError`` if they are not known."""

    def is_certain(self) -> bool:
        """Return whether all draws of all its step times are equal."""

    def policy_config(self) -> PolicyConfig:
        """Return the resolved policies of the engine, with its KV memory."""

    def kv_bytes_per_token(self) -> float:
        """Return the size of the keys and values of one token, in bytes."""

    def check(self, run: Run, replica: int) -> None:
        """Raise ``PolicyError`` if a replica of a run did what this machine cannot do."""
