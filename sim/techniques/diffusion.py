"""Diffusion decoding: a block of tokens is refined as a whole, a fixed number of times."""

from typing import Annotated

from pydantic import Field

from sim.shapes.part import Count
from sim.step_times.acceptance import Diffusion
from sim.techniques.drafted_decoding import DraftedDecoding
from sim.techniques.setup import Setup


class DiffusionDecoding(DraftedDecoding):
    """Blocks of ``block_tokens``, ``passes`` forward passes each; another kind of model."""

    name = "diffusion"
    kind = "algorithm"
    lossless = False
    formula = "speed-up N t_decode / (K t_forward(N)): N / K below the ridge, less past it"
    source = "block diffusion (Arriola 2025)"

    block_tokens: Annotated[int, Field(ge=2)] = 32
    passes: Count = 8

    def apply(self, setup: Setup) -> Setup:
        """With blocks."""
        return self._passing(setup, Diffusion(self.block_tokens, self.passes))
