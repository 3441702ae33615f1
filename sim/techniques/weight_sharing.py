"""Weight sharing between layers: less memory, the same work."""

from typing import Annotated

from pydantic import Field

from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class WeightSharing(Technique):
    """Every ``layers`` layers have one set of weights, read anew for each of them."""

    name = "weight-sharing"
    family = "numbers"
    kind = "algorithm"
    lossless = False
    formula = "layer weights in memory / layers; time unchanged"
    source = "ALBERT (Lan 2020)"

    layers: Annotated[int, Field(ge=2)] = 2

    def apply(self, setup: Setup) -> Setup:
        """Shared; refused where the groups of layers do not come out even."""
        model = setup.deployment.model
        for group in model.layers:
            if group.count % self.layers:
                raise PolicyError(
                    f"{self.name}: {model.name} has {group.count} equal layers, which {self.layers}"
                    " at a time do not divide"
                )
        return setup.with_deployment(weight_sharing=self.layers)
