"""What a simulation must know of a server: a calibrated profile, tables, or a roofline."""

from typing import Protocol

import numpy as np

from policies.config import PolicyConfig
from policies.protocols import KVLayout
from sim.records.run import Run
from sim.step_times.acceptance import Acceptance
from sim.step_times.step_time import ApiLatency, FloatArray, StepTime


class StepTimeSource(Protocol):
    """Step times, and how uncertain they are."""

    def model(self) -> StepTime:
        """The best estimate."""

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """One of the engines that this may be."""

    def noise_factors(self) -> FloatArray:
        """A sample of factors on the durations of single steps."""

    def is_certain(self) -> bool:
        """Whether every draw of it is the same."""


class ApiLatencySource(Protocol):
    """What stands between client and scheduler."""

    def model(self) -> ApiLatency:
        """The simulator's form."""


class ServerModel(Protocol):
    """One engine on one machine."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def describe(self) -> list[str]:
        """What it is and where its figures are from: lines of a report."""

    @property
    def api(self) -> ApiLatencySource:
        """What the HTTP process adds."""

    @property
    def acceptance(self) -> Acceptance | None:
        """The law by which drafts are accepted; None where nothing is known of drafts."""

    def step_time(self, layout: KVLayout) -> StepTimeSource:
        """For a KV layout; raises ``ProfileError`` where nothing is known of it."""

    def is_certain(self) -> bool:
        """Whether every draw of all its step times is the same."""

    def policy_config(self) -> PolicyConfig:
        """The policies of the engine as it stands, its KV memory among them."""

    def kv_bytes_per_token(self) -> float:
        """Size of the keys and values of one token."""

    def check(self, run: Run, replica: int) -> None:
        """Raise where that replica of a run did what this machine cannot do."""
