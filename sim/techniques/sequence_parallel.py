"""Sequence parallelism: a prompt's tokens, and a context's keys, spread over devices."""

from dataclasses import replace

from sim.shapes.part import Count
from sim.techniques.parallelism import Parallelism
from sim.techniques.requirements import require_softmax
from sim.techniques.setup import Setup


class SequenceParallel(Parallelism):
    """``ways`` devices with all weights each; keys and values go round in a ring.

    ``zig_zag`` gives every device an early and a late piece of a causal prompt; without, the
    device with the last piece works nearly twice its share. A decode has one query: its partial
    results are summed over the devices.
    """

    name = "sequence-parallel"
    formula = "prompt / P; P - 1 sends of n / P keys and values a layer, hidden by attention"
    source = "Ring Attention (Liu 2023); Striped Attention (Brandon 2023)"

    ways: Count = 2
    zig_zag: bool = True

    def apply(self, setup: Setup) -> Setup:
        """Spread; refused for a model without softmax attention."""
        require_softmax(self, setup.deployment.model)
        parallel = setup.deployment.parallel
        return self._shared(setup, replace(parallel, sequence=self.ways, zig_zag=self.zig_zag))


def overlap_block_tokens(flops_per_s: float, link_bytes_per_s: float) -> float:
    """Tokens per device from which attention hides the ring: n / P >= F / BW.

    A round computes 4 d (n / P)^2 FLOPs and sends 4 d n / P bytes: two-byte keys and values of as
    many heads as there are queries, every query seeing every key.
    """
    return flops_per_s / link_bytes_per_s
