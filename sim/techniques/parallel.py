"""Techniques of parallelism: several devices share one model over a link.

Symbols in the formulas: P devices, T tokens of a step, d width, n prompt tokens, p pipeline stages,
m micro-batches.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from servetwin.sim.catalogue.entry import Count, Positive
from servetwin.sim.catalogue.hardware import Link
from servetwin.sim.step_times.roofline.deployment import Deployment
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique


class Parallelism(Technique):
    """Devices that share a model, joined by the link of the device unless it is given here.

    ``latency_us`` is paid per message, ``gb_per_s`` (10^9 bytes) holds per direction. Techniques
    applied together share one link: the last given figure counts.
    """

    latency_us: Annotated[float | None, Field(ge=0)] = None
    gb_per_s: Positive | None = None

    def _with_parallel(self, setup: Setup, **changes: object) -> Setup:
        """Return ``setup`` with fields of its ``Parallel`` changed, on the link of the technique.

        Raises ``PolicyError`` where the model cannot be divided so.
        """
        parallel, link = setup.deployment.parallel, self._link(setup.deployment)
        return setup.with_deployment(parallel=replace(parallel, link=link, **changes))  # type: ignore[arg-type]

    def _link(self, deployment: Deployment) -> Link | None:
        if self.latency_us is None and self.gb_per_s is None:
            return deployment.parallel.link
        link = deployment.link
        return Link(
            link.latency_s if self.latency_us is None else self.latency_us / 1e6,
            link.bytes_per_s if self.gb_per_s is None else self.gb_per_s * 1e9,
        )


class TensorParallel(Parallelism):
    """``ways`` devices hold a slice of every weight and whole KV heads, or copies of one."""

    ways: Count = 2

    def apply(self, setup: Setup) -> Setup:
        """Split every product; raise where ``ways`` does not divide the heads."""
        return self._with_parallel(setup, tensor=self.ways)


class PipelineParallel(Parallelism):
    """``stages`` devices with some of the layers each; batches pass through them in pieces.

    ``micro_batches`` are in flight (0: as many as stages). The idle share of a stage is
    (p - 1) / (m + p - 1).
    """

    stages: Count = 2
    micro_batches: Annotated[int, Field(ge=0)] = 0

    def apply(self, setup: Setup) -> Setup:
        """Split the layers; raise where they are fewer than the stages."""
        return self._with_parallel(setup, pipeline=self.stages, micro_batches=self.micro_batches)


class SequenceParallel(Parallelism):
    """``ways`` devices with all weights each share the tokens; keys and values go round in a ring.

    ``zig_zag`` gives every device an early and a late piece of a causal prompt; without it, the
    device with the last piece works nearly twice its share. A decode has one query: its partial
    results are summed over the devices. Attention hides the ring where n / P is at least
    FLOP/s over bytes/s of the link.
    """

    ways: Count = 2
    zig_zag: bool = True

    def apply(self, setup: Setup) -> Setup:
        """Spread the tokens; raise where the model has no softmax attention."""
        self.require_softmax(setup)
        return self._with_parallel(setup, sequence=self.ways, zig_zag=self.zig_zag)


class ExpertParallel(Parallelism):
    """``ways`` devices share the experts; each has all other weights and sequences of its own."""

    ways: Count = 2

    def apply(self, setup: Setup) -> Setup:
        """Spread the experts; raise where the model has none, or ``ways`` does not divide them."""
        return self._with_parallel(setup, expert=self.ways)
