"""Self-speculation: the model drafts for itself, by fewer layers or from a short context."""

from typing import Annotated

from pydantic import Field

from sim.shapes.model import ModelShape
from sim.shapes.part import Count, Share
from sim.step_times.acceptance import Chain
from sim.step_times.roofline.deployment import Drafting
from sim.techniques.drafted_decoding import DraftedDecoding
from sim.techniques.setup import Setup
from workloads.errors import PolicyError


class SelfSpeculation(DraftedDecoding):
    """Drafts by ``layer_share`` of the layers that see ``context_tokens`` tokens (None: all).

    The tokens seen are those that streaming keeps, first and last ones. Weights and keys are the
    target's own; the verification reads everything.
    """

    name = "self-speculation"
    kind = "system"
    lossless = True
    formula = "as speculative; a draft reads share x weights and min(l, W) tokens of KV"
    source = "Draft & Verify (Zhang 2023); TriForce (Sun 2024) on StreamingLLM (Xiao 2023)"

    alpha: Share = 0.8
    drafts: Count = 4
    layer_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    context_tokens: Count | None = None

    def apply(self, setup: Setup) -> Setup:
        """Without a draft model; refused where a draft would cost what a token does."""
        if self.layer_share == 1 and self.context_tokens is None:
            raise PolicyError(
                f"{self.name}: a draft of all layers and the whole context costs as much as a "
                "token; set layer_share below 1 or context_tokens"
            )
        part = _part_of(setup.deployment.model, self.layer_share)
        setup.with_deployment(model=part)  # refuses more pipeline stages than it has layers
        drafting = Drafting(
            part,
            (1,) * self.drafts,
            is_part=True,
            context_tokens=self.context_tokens,
        )
        return self._passing(setup, Chain(self.alpha, self.drafts), drafting)


def _part_of(model: ModelShape, share: float) -> ModelShape:
    """About ``share`` of the layers of each kind, at least one; embedding and head are whole."""
    layers = tuple(
        group.model_copy(update={"count": max(1, round(group.count * share))})
        for group in model.layers
    )
    return model.model_copy(update={"layers": layers})
