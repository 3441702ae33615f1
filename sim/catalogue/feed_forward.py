"""The part of a layer that computes each token alone: a dense FFN, or a mixture of experts."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from servetwin.sim.catalogue.frozen_model import Count, FrozenModel


class Dense(FrozenModel):
    """``matrices`` of d x ``width``: 3 where gated (gate, up, down), 2 where plain; 0: no FFN."""

    kind: Literal["dense"] = "dense"
    width: Annotated[int, Field(ge=0)]
    matrices: Annotated[int, Field(ge=0)] = 3

    def params(self, model_width: int) -> float:
        """Return the number of all weights; ``model_width`` is d."""
        return float(self.matrices * model_width * self.width)

    def active_params(self, model_width: int) -> float:
        """Return the number of weights that one token uses."""
        return self.params(model_width)

    def touched_params(self, model_width: int, tokens: float) -> float:
        """Return the expected number of weights that a step of ``tokens`` reads."""
        return self.params(model_width) if tokens > 0 else 0.0


class Experts(FrozenModel):
    """A router and ``experts`` FFNs, of which each token uses ``top_k``, beside a shared one.

    Shazeer 2017; Mixtral 2024; DeepSeek-V2 2024 (shared experts).
    """

    kind: Literal["experts"] = "experts"
    experts: Count
    top_k: Count
    width: Count
    matrices: Count = 3
    shared_width: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _top_k_is_possible(self) -> "Experts":
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} of {self.experts} experts is impossible")
        return self

    def expert_params(self, model_width: int) -> float:
        """Return the number of weights of one expert."""
        return float(self.matrices * model_width * self.width)

    def params(self, model_width: int) -> float:
        """Return the number of all weights; ``model_width`` is d."""
        return self._always(model_width) + self.experts * self.expert_params(model_width)

    def active_params(self, model_width: int) -> float:
        """Return the number of weights that one token uses."""
        return self._always(model_width) + self.top_k * self.expert_params(model_width)

    def touched_experts(self, tokens: float) -> float:
        """Return the expected number of experts that a step uses: E (1 - (1 - k/E)^T) for T tokens.

        Routing is independent and uniform; a skewed router touches fewer (Jensen).
        """
        missed = float((1 - self.top_k / self.experts) ** tokens)
        return self.experts * (1 - missed)

    def touched_params(self, model_width: int, tokens: float) -> float:
        """Return the expected number of weights that a step of ``tokens`` reads."""
        if tokens <= 0:
            return 0.0
        touched = self.touched_experts(tokens) * self.expert_params(model_width)
        return self._always(model_width) + touched

    def _always(self, model_width: int) -> float:
        router = model_width * self.experts
        return float(router + self.matrices * model_width * self.shared_width)


FeedForward = Annotated[Dense | Experts, Field(discriminator="kind")]
"""The part of a layer that works on each position by itself."""
