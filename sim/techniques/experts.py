"""Mixtures of experts in the place of a dense model: as large, as costly, or as good."""

from typing import Literal

from servetwin.sim.catalogue.entry import Count
from servetwin.sim.catalogue.layers import Dense, Experts, FeedForward
from servetwin.sim.catalogue.model import ModelShape
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import Technique


class MixtureOfExperts(Technique):
    """A router sends each token to ``top_k`` of ``experts`` FFNs in place of a dense one.

    ``compare`` says what is alike on both sides: the ``total`` weights (experts of 1 / E of the
    FFN's width; less is computed), the ``active`` ones of a token (1 / k of the width; as much is
    computed, with more weights), or the ``width`` of an expert and of the FFN. ``expert_width``
    sets another. ``mixture`` names a trained model, such as one of equal quality, in place of all
    that. Routing is uniform and independent here; a skewed router touches fewer experts.

    Off, a mixture gets a dense FFN of as many weights, in all or (``compare=active``) for a token.
    """

    experts: Count = 8
    top_k: Count = 2
    compare: Literal["total", "active", "width"] = "total"
    expert_width: Count | None = None
    mixture: str | None = None

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with experts; a mixture stays as it is unless parameters are given.

        Raises ``PolicyError`` where no FFN is dense, or the experts are impossible.
        """
        model = setup.deployment.model
        if model.experts() and not self.model_fields_set - {"compare"}:
            return setup
        if not any(_is_dense(group.ffn) for group in model.layers):
            raise self.refusal(f"{model.name} has no dense FFN to make experts of")
        if self.mixture is not None:
            return self._trained(setup, self.mixture)
        if self.top_k > self.experts:
            raise self.refusal(
                f"top_k {self.top_k} of {self.experts} experts is not possible; at most "
                f"{self.experts}"
            )
        alike = "given width" if self.expert_width else _ALIKE[self.compare]
        name = f"{model.name} as {self.experts} experts of {alike}"
        sparse = model.with_ffns(lambda ffn: self._split(ffn, model))
        return setup.with_deployment(model=sparse.model_copy(update={"name": name}))

    def off(self, setup: Setup) -> Setup:
        """Return a mixture with dense FFNs; any other setup as it is."""
        model = setup.deployment.model
        if not model.experts():
            return setup
        name = f"{model.name} as a dense model"
        dense = model.with_ffns(self._joined).model_copy(update={"name": name})
        return setup.with_deployment(model=dense)

    def _joined(self, ffn: FeedForward) -> FeedForward:
        if not isinstance(ffn, Experts):
            return ffn
        parts = ffn.top_k if self.compare == "active" else ffn.experts
        return Dense(width=parts * ffn.width + ffn.shared_width, matrices=ffn.matrices)

    def _trained(self, setup: Setup, name: str) -> Setup:
        """Return the setup with a trained mixture, up to its longest context."""
        mixture = self.model_of("mixture")
        if not mixture.experts():
            raise self.refusal(f"mixture {mixture.name} has no experts; name a model that has some")
        if self.expert_width is not None:
            raise self.refusal(
                f"expert_width {self.expert_width} cannot be set beside mixture={name}, whose "
                "experts are as wide as they were trained"
            )
        longest = min(setup.policies.max_model_len, mixture.max_model_len)
        return setup.with_deployment(model=mixture).with_policies(max_model_len=longest)

    def _split(self, ffn: FeedForward, model: ModelShape) -> FeedForward:
        if not isinstance(ffn, Dense) or not _is_dense(ffn):
            return ffn
        width = self.expert_width or self._width_of(ffn.width, model)
        return Experts(experts=self.experts, top_k=self.top_k, width=width, matrices=ffn.matrices)

    def _width_of(self, dense: int, model: ModelShape) -> int:
        """Return the width of an expert where the FFN was ``dense`` wide."""
        parts = {"total": self.experts, "active": self.top_k, "width": 1}[self.compare]
        if parts > dense:
            raise self.refusal(
                f"compare={self.compare} cuts the {dense} columns of the FFN of {model.name} into "
                f"{parts}; at most {dense}"
            )
        return round(dense / parts)


_ALIKE = {"total": "equal total size", "active": "equal active size", "width": "equal width"}


def _is_dense(ffn: FeedForward) -> bool:
    return isinstance(ffn, Dense) and ffn.width * ffn.matrices > 0
