"""Blockwise parallel decoding: heads of the model propose the next block, its next pass checks."""

from typing import Annotated

from pydantic import Field

from sim.shapes.part import Share
from sim.step_times.acceptance import Blockwise
from sim.techniques.drafted_decoding import DraftedDecoding
from sim.techniques.setup import Setup


class BlockwiseDecoding(DraftedDecoding):
    """Passes of ``block`` rows; each token after the first is right with probability ``alpha``.

    The heads are trained into the model, and cost nothing here.
    """

    name = "blockwise"
    kind = "algorithm"
    lossless = False
    formula = "m / k + 1 passes for m tokens, k of a block accepted on average"
    source = "Stern 2018; Medusa (Cai 2024)"

    alpha: Share = 0.7
    block: Annotated[int, Field(ge=2)] = 4

    def apply(self, setup: Setup) -> Setup:
        """With passes of a block."""
        return self._passing(setup, Blockwise(self.alpha, self.block))
