"""Mixture of experts: a router sends each token to a few of many FFNs."""

from sim.shapes.feed_forward import Dense, Experts, FeedForward
from sim.shapes.part import Count
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError


class MixtureOfExperts(Technique):
    """Dense FFNs become ``experts`` of ``expert_width`` (None: as wide as before), ``top_k`` used.

    Uniform, independent routing: a skewed router touches fewer experts.
    """

    name = "experts"
    family = "attention"
    kind = "algorithm"
    lossless = False
    formula = "E (1 - (1 - k / E)^T) experts read by T tokens, k computed by each"
    source = "Shazeer 2017; Mixtral (2024)"

    experts: Count = 8
    top_k: Count = 2
    expert_width: Count | None = None

    def apply(self, setup: Setup) -> Setup:
        """With experts; refused where no FFN is dense, or fewer are there than a token uses."""
        model = setup.deployment.model
        if self.top_k > self.experts:
            raise PolicyError(
                f"{self.name}: top_k {self.top_k} of {self.experts} experts is not possible; at "
                f"most {self.experts}"
            )
        if not any(_is_dense(group.ffn) for group in model.layers):
            raise PolicyError(f"{self.name}: {model.name} has no dense FFN to make experts of")
        layers = tuple(g.model_copy(update={"ffn": self._split(g.ffn)}) for g in model.layers)
        return setup.with_deployment(model=model.model_copy(update={"layers": layers}))

    def _split(self, ffn: FeedForward) -> FeedForward:
        if not isinstance(ffn, Dense) or not _is_dense(ffn):
            return ffn
        return Experts(
            experts=self.experts,
            top_k=self.top_k,
            width=self.expert_width or ffn.width,
            matrices=ffn.matrices,
        )


def _is_dense(ffn: FeedForward) -> bool:
    return isinstance(ffn, Dense) and ffn.width * ffn.matrices > 0
