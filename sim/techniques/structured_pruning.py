"""Structured pruning: whole heads and FFN neurons go, what is left is a smaller dense model."""

from typing import Annotated

from pydantic import Field

from sim.shapes.feed_forward import Dense, Experts, FeedForward
from sim.shapes.mixers import Mixer, Recurrence
from sim.shapes.model import LayerGroup, ModelShape
from sim.techniques.setup import Setup
from sim.techniques.technique import Technique
from workloads.errors import PolicyError

Kept = Annotated[float, Field(gt=0, le=1)]


class StructuredPruning(Technique):
    """``kept_heads`` of the heads (with their KV heads) and ``kept_ffn`` of the FFN's width."""

    name = "structured-pruning"
    family = "numbers"
    kind = "algorithm"
    lossless = False
    formula = "heads and FFN width x what is kept: weights, FLOPs and KV shrink alike"
    source = "LLM-Pruner (Ma 2023)"

    kept_heads: Kept = 0.75
    kept_ffn: Kept = 0.75

    def apply(self, setup: Setup) -> Setup:
        """The smaller model; refused where no whole number of heads is left."""
        model = setup.deployment.model
        layers = tuple(self._pruned(group, model) for group in model.layers)
        pruned = model.model_copy(update={"name": f"{model.name} pruned", "layers": layers})
        return setup.with_deployment(model=pruned)

    def _pruned(self, group: LayerGroup, model: ModelShape) -> LayerGroup:
        mixer, ffn = self._mixer(group.mixer, model), self._ffn(group.ffn)
        return group.model_copy(update={"mixer": mixer, "ffn": ffn})

    def _mixer(self, mixer: Mixer, model: ModelShape) -> Mixer:
        if self.kept_heads == 1:
            return mixer
        if isinstance(mixer, Recurrence):
            raise PolicyError(
                f"{self.name}: the recurrent layers of {model.name} have no heads; set kept_heads "
                "to 1 and prune the FFN"
            )
        kinds = [kind for kind in ("heads", "kv_heads") if getattr(mixer, kind, 1) > 1]
        return mixer.model_copy(update={k: self._heads(getattr(mixer, k), model) for k in kinds})

    def _heads(self, heads: int, model: ModelShape) -> int:
        left = heads * self.kept_heads
        if abs(left - round(left)) > 1e-9:
            raise PolicyError(
                f"{self.name}: kept_heads {self.kept_heads:g} of the {heads} (KV) heads of "
                f"{model.name} leaves {left:g}, not a whole number"
            )
        return round(left)

    def _ffn(self, ffn: FeedForward) -> FeedForward:
        if isinstance(ffn, Dense) and not ffn.width:
            return ffn
        widths = {"width": max(1, round(ffn.width * self.kept_ffn))}
        if isinstance(ffn, Experts):
            widths["shared_width"] = round(ffn.shared_width * self.kept_ffn)
        return ffn.model_copy(update=widths)
