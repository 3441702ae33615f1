"""The model of a server: step times and API latency of a profile, of tables, or of a roofline."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVLayout
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, load_profile
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.step_time import NO_NOISE, NoiseSample, StepTime
from servetwin.workloads.errors import ProfileError
from servetwin.workloads.plugins import Registry, names_a_file


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
    def api(self) -> ApiLatencyFit:
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

    def check(self, run: Run, replicas: range) -> None:
        """Raise ``PolicyError`` if such a replica of a run did what this machine cannot do."""


class UnmeasuredServer:
    """The part that servers share whose step times no calibration measured.

    The step times are the same for every KV layout and without noise, and the server itself is
    their ``StepTimeSource``.
    """

    acceptance: Acceptance | None = None

    def step_time(self, layout: KVLayout) -> Self:
        """Return itself, for every layout."""
        return self

    def noise_factors(self) -> NoiseSample:
        """Return the factor 1: no noise was measured."""
        return NO_NOISE

    def check(self, run: Run, replicas: range) -> None:
        """Accept every run: there is no bound to break."""


# A step of eleven days; simulated time stays exact to the nanosecond.
MOST_STEP_S = 1e6


def _wrong_durations(durations_s: Any, shape: BatchShape, steps: int = 1) -> str | None:
    if durations_s.shape != (steps,):
        return f"an array of shape {durations_s.shape}, not {steps} durations"
    if durations_s.dtype.kind not in "iuf":
        return f"{str(durations_s[0])!r} for a duration in seconds"
    if not ((durations_s >= 0).all() and (durations_s <= MOST_STEP_S).all()):
        return f"a duration that is not from 0 to {MOST_STEP_S:,.0f} s"
    return None


RETURNED = {"seconds": _wrong_durations}
# None is registered: a registered step time is a profile, a data sheet or a table.
STEP_TIMES: Registry[StepTime] = Registry(
    "profile", "step time", "servetwin.sim.step_times.protocol:StepTime", "", {},
    checks="servetwin.sim.step_times.server_model:RETURNED",
)  # fmt: skip


@dataclass(frozen=True)
class PluginServer(UnmeasuredServer):
    """A server under the default policies, whose steps take as long as the class ``name`` says.

    The step times are certain.
    """

    name: str
    api: ApiLatencyFit = field(default_factory=ApiLatencyFit)
    origin: ClassVar[Origin] = "not stated"
    """Only the author of the class knows."""

    def model(self) -> StepTime:
        """Return a new step time; raises ``PluginError`` for a class that cannot be used."""
        return STEP_TIMES.build(self.name)

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """Return the same as ``model``."""
        return self.model()

    def is_certain(self) -> bool:
        """Return True."""
        return True

    def describe(self) -> list[str]:
        """Return one line that names the class."""
        return [f"step times of {self.name}"]

    def policy_config(self) -> PolicyConfig:
        """Return the default policies."""
        return PolicyConfig()

    def kv_bytes_per_token(self) -> float:
        """Raise ``ProfileError``: the size of keys and values is not known."""
        raise ProfileError(
            f"profile {self.name}: a step time does not know the size of keys and values, which is "
            "needed to move them over a link"
        )


def load_server(name: str) -> Profile | PluginServer:
    """Return the profile ``name``, or the server of a step time named as ``path.py:Class``.

    Raises ``ProfileError`` for a profile and ``PluginError`` for a class that cannot be used.
    """
    if not names_a_file(name):
        return load_profile(name)
    server = PluginServer(name)
    server.model()
    return server
