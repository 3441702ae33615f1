"""2:4 sparsity: two of every four weights are zero, which sparse tensor cores skip."""

from dataclasses import replace

from sim.step_times.roofline.formats import Format
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique

_INDEX_BYTES = 2 * 2 / 4 / 8
"""Two bits for each of the two weights that remain of four, per weight."""


class SemiStructuredSparsity(Technique):
    """Half of the values and an index, in whatever format the weights have; twice the peak.

    The device must have sparse products (NVIDIA since Ampere, AMD since CDNA 3): data sheets' other
    peaks are dense, so this cannot be checked.
    """

    name = "sparsity-2-4"
    family = "numbers"
    kind = "algorithm"
    lossless = False
    formula = "weight bytes w / 2 + 1/8 (bf16 x 0.5625, int8 x 0.625); peak x 2"
    source = "Accelerating Sparse Deep Neural Networks (Mishra 2021)"

    def apply(self, setup: Setup) -> Setup:
        """Both phases on half of the weights."""
        prefill, decode = map(_halved, (setup.deployment.prefill, setup.deployment.decode))
        return setup.with_deployment(prefill=prefill, decode=decode)


def _halved(form: Format) -> Format:
    return replace(
        form,
        name=f"2:4 {form.name}",
        weight_bytes=form.weight_bytes / 2 + _INDEX_BYTES,
        stored_bytes=None,
        compute_share=form.compute_share * 2,
        quality_bits=form.quality_bits / 2,
        lossless=False,
    )
