"""What the ways to share one model between devices have in common: a link."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.shapes.part import Positive
from sim.step_times.roofline.deployment import Deployment, Parallel
from sim.step_times.roofline.links import Link
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class Parallelism(Technique):
    """Devices that share a model, joined by their own link but for the figures that are given.

    ``latency_us`` is paid per message, ``gb_per_s`` (10^9 bytes) holds per direction. Techniques
    applied together share one link: the last given figure counts.
    """

    family = "parallel"
    kind = "system"
    lossless = True

    latency_us: Annotated[float | None, Field(ge=0)] = None
    gb_per_s: Positive | None = None

    def _shared(self, setup: Setup, parallel: Parallel) -> Setup:
        """``setup`` so shared, on this link."""
        link = self._link(setup.deployment)
        return setup.with_deployment(parallel=replace(parallel, link=link))

    def _link(self, deployment: Deployment) -> Link | None:
        if self.latency_us is None and self.gb_per_s is None:
            return deployment.parallel.link
        own = deployment.link
        return Link(
            own.latency_s if self.latency_us is None else self.latency_us / 1e6,
            own.bytes_per_s if self.gb_per_s is None else self.gb_per_s * 1e9,
        )
