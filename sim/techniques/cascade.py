"""A cascade of models: easy requests are a small one's, hard ones the large one's."""

from sim.shapes.catalogue import find_model
from sim.shapes.part import Share
from sim.step_times.roofline.deployment import Cascade
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class ModelCascade(Technique):
    """Both models share the devices; ``small_share`` of the rows are those of ``small``.

    A router decides beforehand, for free here; ``sim.formulas.cascade_cost`` has its price, and
    that of trying the small model first.
    """

    name = "cascade"
    family = "decoding"
    kind = "algorithm"
    lossless = False
    formula = "cost c_route + q c_small + (1 - q) c_large"
    source = "RouteLLM (Ong 2024); FrugalGPT (Chen 2023)"

    small: str = "tinyllama-1.1b"
    small_share: Share = 0.6

    def apply(self, setup: Setup) -> Setup:
        """With a small model; refused where it is not the smaller, or beside drafts."""
        small, large = find_model(self.small), setup.deployment.model
        if small.params() > large.params():
            raise PolicyError(
                f"{self.name}: {small.name} has {small.params():.3g} weights, more than the "
                f"{large.params():.3g} of {large.name}; the small model must be the smaller"
            )
        if setup.acceptance is not None:
            raise PolicyError(f"{self.name}: not modelled together with passes of several tokens")
        setup.with_deployment(model=small)  # refuses devices that do not divide its heads
        return setup.with_deployment(cascade=Cascade(small, self.small_share))
