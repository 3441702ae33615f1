"""Unstructured pruning: zeros anywhere, which dense products multiply like other numbers."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.shapes.part import Count
from sim.step_times.roofline.formats import Format
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError

_BITMAP_BYTES = 1 / 8


class UnstructuredPruning(Technique):
    """Zeros take a bit each in memory, beside the values of the other weights.

    Each of ``rounds`` drops ``sparsity`` of what the last one left, and retrains (Han 2015).
    Products stay dense, so the weights are laid out again for each of them: no time is won.
    """

    name = "unstructured-pruning"
    family = "numbers"
    kind = "algorithm"
    lossless = False
    formula = "weight bytes in memory (1 - s)^rounds w + 1/8; time unchanged"
    source = "SparseGPT (Frantar 2023)"

    sparsity: Annotated[float, Field(gt=0, lt=1)] = 0.5
    rounds: Count = 1

    def apply(self, setup: Setup) -> Setup:
        """Smaller in memory; refused where the bitmap takes more than the zeros did."""
        prefill, decode = map(self._sparse, (setup.deployment.prefill, setup.deployment.decode))
        return setup.with_deployment(prefill=prefill, decode=decode)

    def _sparse(self, form: Format) -> Format:
        dense, kept = form.bytes_in_memory, (1 - self.sparsity) ** self.rounds
        stored = kept * dense + _BITMAP_BYTES
        if stored >= dense:
            raise PolicyError(
                f"{self.name}: {1 - kept:.4g} zeros with a bitmap take {stored:.4g} bytes per "
                f"{form.name} weight, not less than {dense:.4g}; sparsity must be above "
                f"{_BITMAP_BYTES / dense:.4g}"
            )
        return replace(
            form,
            name=f"sparse {form.name}",
            stored_bytes=stored,
            quality_bits=form.quality_bits * kept,
            lossless=False,
        )
