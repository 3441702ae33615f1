"""Techniques of kernels: the same arithmetic with less traffic, fewer launches, fuller devices."""

from typing import Annotated

from pydantic import Field

from servetwin.sim.catalogue.entry import Count
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import LONG_PROMPTS, Technique


class AttentionKernel(Technique):
    """A technique of the kernels of softmax attention."""

    def _with(self, setup: Setup, **changes: object) -> Setup:
        """Return ``setup`` with kernels changed; raise where the model has no such attention."""
        self.require_softmax(setup)
        return setup.with_kernels(**changes)


class FlashAttention(AttentionKernel):
    """Attention to a prompt in tiles with a running softmax: scores never leave the chip.

    Off, all n^2 scores of a head travel out and in twice.
    """

    def apply(self, setup: Setup) -> Setup:
        """Keep the scores on the chip; raise where the model has no softmax attention."""
        return self._with(setup, flash_attention=True)

    def off(self, setup: Setup) -> Setup:
        """Send the scores through memory."""
        return self._with(setup, flash_attention=False)


class FlashDecoding(AttentionKernel):
    """A thread block per sequence, KV head and ``split_tokens`` keys, and a reduction of them.

    ``split_tokens`` None: as many pieces as fill the device, their reduction within the achieved
    efficiency. Off, a decode has a thread block per sequence and KV head, too few to fill a device.
    """

    experiment = LONG_PROMPTS

    split_tokens: Count | None = None

    def apply(self, setup: Setup) -> Setup:
        """Split the keys; raise where the model has no softmax attention."""
        if self.split_tokens is not None:
            return self._with(setup, occupancy="split", split_tokens=self.split_tokens)
        occupancy = setup.deployment.kernels.occupancy
        return self._with(setup, occupancy="full" if occupancy == "heads" else occupancy)

    def off(self, setup: Setup) -> Setup:
        """Give each sequence and KV head one thread block."""
        return self._with(setup, occupancy="heads")


class AsynchronousSoftmax(AttentionKernel):
    """One maximum fixed beforehand, so that the pieces of a split softmax need no update.

    It saves the reduction of a split, and ``share``, the part of decode attention that updates
    take.
    """

    share: Annotated[float, Field(ge=0, lt=1)] = 0.2

    def apply(self, setup: Setup) -> Setup:
        """Drop the synchronisation; raise where the model has no softmax attention."""
        kernels = setup.deployment.kernels
        reduces = kernels.synchronised and kernels.occupancy != "split"
        return self._with(setup, synchronised=reduces, synchronisation_share=0.0)

    def off(self, setup: Setup) -> Setup:
        """Let every piece wait for the maximum of the others."""
        return self._with(setup, synchronised=True, synchronisation_share=self.share)


class KernelFusion(Technique):
    """``launches_per_layer`` kernels that keep on the chip what lies between two products.

    Off, a layer launches twice as many, and their results travel through memory.
    """

    launches_per_layer: Count = 8

    def apply(self, setup: Setup) -> Setup:
        """Fuse the kernels of a layer."""
        if setup.deployment.kernels.fused and not self.is_given("launches_per_layer"):
            return setup
        return setup.with_kernels(fused=True, launches_per_layer=self.launches_per_layer)

    def off(self, setup: Setup) -> Setup:
        """Launch one kernel per operation."""
        return setup.with_kernels(fused=False, launches_per_layer=self.launches_per_layer)
