"""A calibrated engine that a technique changes: its step times, and those of a formula beside them.

The time of a batch with the technique is that of the roofline with it, and what the calibration
found beyond the roofline without it stays::

    t = r_with min(1, c / r_without) + max(0, c - r_without)

c is the calibrated time of the batch, r the fitted roofline's. What a roofline does not know, such
as an overhead for every sequence, no technique shortens; where it is too slow for a batch, both
sides are by as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from servetwin.policies.batch import BatchShape
from servetwin.policies.config import PolicyConfig
from servetwin.policies.protocols import KVLayout
from servetwin.sim.records.run import Run
from servetwin.sim.step_times.acceptance import Acceptance
from servetwin.sim.step_times.profile import ApiLatencyFit, Profile, StepTimeFit
from servetwin.sim.step_times.protocol import FloatArray, StepTime
from servetwin.sim.step_times.provenance import Origin
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.step_times.roofline.efficiency import Efficiency
from servetwin.sim.step_times.roofline.step_time import roofline_step_time
from servetwin.sim.step_times.step_time import NoiseSample


class ChangedStepTime:
    """The step times of one calibration and one fit, with a technique."""

    wants_contexts = True

    def __init__(
        self, calibrated: StepTime, without: StepTime, with_it: StepTime, factor: float = 1.0
    ) -> None:
        self._calibrated, self._without, self._with_it = calibrated, without, with_it
        self._factor = factor

    def seconds(self, shape: BatchShape, steps: int = 1) -> FloatArray:
        """Return the seconds of ``steps`` repetitions.

        Without the technique, rows that verify drafts are rows of a prompt.
        """
        plain = shape._replace(drafted_chunks=0)
        calibrated_s = self._calibrated.seconds(plain, steps)
        without_s = self._without.seconds(plain, steps)
        with_s = self._with_it.seconds(shape, steps)
        known = np.minimum(1.0, calibrated_s / without_s)
        changed_s = with_s * known + np.maximum(0.0, calibrated_s - without_s)
        return np.asarray(self._factor * changed_s)


@dataclass(frozen=True, slots=True)
class ChangedSteps:
    """A fit of step times with a technique: entry i of ``efficiencies`` is for its draw i.

    The last is for the fit itself. It draws what the fit without the technique draws.
    """

    fit: StepTimeFit
    without: Deployment
    with_it: Deployment
    efficiencies: Sequence[Efficiency]

    def model(self) -> StepTime:
        """Return the step times of the fit itself."""
        return self._changed(None, 1.0)

    def drawn(self, rng: np.random.Generator) -> StepTime:
        """Return the step times of a random draw."""
        return self._changed(*self.fit.draw(rng))

    def _changed(self, place: int | None, drift: float) -> StepTime:
        efficiency = self.efficiencies[-1 if place is None else place]
        without, with_it = (
            roofline_step_time(replace(deployment, efficiency=efficiency))
            for deployment in (self.without, self.with_it)
        )
        return ChangedStepTime(self.fit.model_of(place), without, with_it, drift)

    def noise_factors(self) -> NoiseSample:
        """Return the noise of the engine without the technique."""
        return self.fit.noise_factors()

    def is_certain(self) -> bool:
        """Return whether all draws are equal."""
        return self.fit.is_certain()


@dataclass(frozen=True, slots=True)
class ChangedServer:
    """The engine of ``profile`` with a technique: a ``ServerModel``."""

    profile: Profile
    steps: ChangedSteps
    policies: PolicyConfig
    acceptance: Acceptance | None = None

    @property
    def name(self) -> str:
        """Name in reports."""
        return self.steps.with_it.name

    @property
    def api(self) -> ApiLatencyFit:
        """Latency of the HTTP process, which no technique changes."""
        return self.profile.api

    @property
    def origin(self) -> Origin:
        """The origin of the engine without the technique; the change itself is a formula's."""
        return self.profile.origin

    def describe(self) -> list[str]:
        """Return what the server is."""
        return [f"{self.profile.name} with a technique: {self.name}"]

    def step_time(self, layout: KVLayout) -> ChangedSteps:
        """Return the step times, for every layout."""
        del layout
        return self.steps

    def is_certain(self) -> bool:
        """Return whether all draws are equal."""
        return self.steps.is_certain()

    def policy_config(self) -> PolicyConfig:
        """Return the policies with the technique."""
        return self.policies

    def kv_bytes_per_token(self) -> float:
        """Return the bytes of keys and values of a token with the technique."""
        return self.steps.with_it.kv_bytes_per_token()

    def check(self, run: Run, replica: int) -> None:
        """Accept every run: a measured engine has no computed bounds."""
