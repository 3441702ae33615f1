"""FlashDecoding++: one maximum fixed beforehand, so that pieces of a softmax need no update."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sim.techniques.requirements import require_softmax
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique


class AsynchronousSoftmax(Technique):
    """Drops the reduction of a split, and ``share``, what updates take of decode attention."""

    name = "flash-decoding++"
    family = "kernels"
    kind = "system"
    lossless = True
    formula = "decode attention x (1 - share), without the reduction of splits"
    source = "FlashDecoding++ (Hong 2023)"

    share: Annotated[float, Field(ge=0, lt=1)] = 0.2

    def apply(self, setup: Setup) -> Setup:
        """No synchronisation; refused for a model without softmax attention."""
        return self._with(setup, False)

    def off(self, setup: Setup) -> Setup:
        """Every piece waits for the maximum of the others."""
        return self._with(setup, True)

    def _with(self, setup: Setup, synchronised: bool) -> Setup:
        require_softmax(self, setup.deployment.model)
        kernels = setup.deployment.kernels
        kernels = replace(kernels, synchronised=synchronised, synchronisation_share=self.share)
        return setup.with_deployment(kernels=kernels)
