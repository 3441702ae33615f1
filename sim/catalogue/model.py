"""The shape of a model, which decides its weights, its KV memory and its work per token."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from servetwin.sim.catalogue.entry import Count, FrozenModel
from servetwin.sim.catalogue.layers import Attention, Experts, FeedForward, Mixer
from servetwin.sim.catalogue.quantisation import Quantisation


class LayerGroup(FrozenModel):
    """``count`` equal layers. Groups need not be contiguous in the model: only counts matter."""

    count: Count
    mixer: Mixer
    ffn: FeedForward


class ModelShape(FrozenModel):
    """A decoder of ``width`` d over ``vocabulary`` V; norms and biases are left out.

    ``tied_embeddings``: the head reads the embedding's weights. ``positions`` are learned position
    embeddings (OPT, GPT-3). ``max_model_len`` is the longest context it was made for, ``source``
    the origin of the figures, ``quantisation`` has the number formats of the published weights.
    """

    name: str
    width: Count
    vocabulary: Count
    layers: Annotated[tuple[LayerGroup, ...], Field(min_length=1)]
    tied_embeddings: bool = False
    positions: Annotated[int, Field(ge=0)] = 0
    max_model_len: Count = 4096
    source: str
    quantisation: Quantisation = Quantisation()

    @property
    def layer_count(self) -> int:
        """The number of layers."""
        return sum(group.count for group in self.layers)

    def linear_params(self) -> float:
        """Return the number of weights of all layers, without embedding and head."""
        return self.total(lambda g: g.mixer.params(self.width) + g.ffn.params(self.width))

    def active_linear_params(self) -> float:
        """Return the number of weights of the layers that one token uses."""
        return self.total(lambda g: g.mixer.params(self.width) + g.ffn.active_params(self.width))

    def head_params(self) -> int:
        """Return the number of weights of the output head: V d."""
        return self.vocabulary * self.width

    def params(self) -> float:
        """Return the number of weights: layers, embedding, head unless tied, learned positions."""
        embeddings = self.head_params() * (1 if self.tied_embeddings else 2)
        return self.linear_params() + embeddings + self.positions * self.width

    def active_params(self) -> float:
        """Return the number of weights that one token uses, embedding and head as in ``params``."""
        return self.params() - self.linear_params() + self.active_linear_params()

    def kv_elements_per_token(self) -> float:
        """Return the elements of K and V that a token adds, all layers together."""
        return self.total(lambda g: g.mixer.kv_elements())

    def state_elements(self) -> float:
        """Return the elements that a sequence keeps whatever its length, all layers together."""
        return self.total(lambda g: g.mixer.state_elements())

    def resident_kv_elements(self, context_tokens: int) -> float:
        """Return the elements that a context keeps: states, and per layer min(l, limit) tokens."""
        return self.state_elements() + self.total(
            lambda g: g.mixer.kv_elements() * g.mixer.resident_tokens(context_tokens)
        )

    def with_layers(self, change: Callable[[LayerGroup], list[LayerGroup]]) -> "ModelShape":
        """Return the model with every group of layers replaced by others."""
        layers = tuple(new for group in self.layers for new in change(group))
        return self.model_copy(update={"layers": layers})

    def with_mixers(self, change: Callable[[Mixer], Mixer]) -> "ModelShape":
        """Return the model with the mixer of every layer changed."""
        return self.with_layers(lambda g: [g.model_copy(update={"mixer": change(g.mixer)})])

    def with_attentions(self, change: Callable[[Attention], Mixer]) -> "ModelShape":
        """Return the model with every softmax attention with KV heads changed."""
        return self.with_mixers(lambda one: change(one) if isinstance(one, Attention) else one)

    def with_ffns(self, change: Callable[[FeedForward], FeedForward]) -> "ModelShape":
        """Return the model with the FFN of every layer changed."""
        return self.with_layers(lambda g: [g.model_copy(update={"ffn": change(g.ffn)})])

    def attentions(self) -> list[Attention]:
        """Return the softmax attentions with KV heads, one per group of layers."""
        return [g.mixer for g in self.layers if isinstance(g.mixer, Attention)]

    def experts(self) -> Experts | None:
        """Return the experts of the first layers that have any."""
        return next((g.ffn for g in self.layers if isinstance(g.ffn, Experts)), None)

    def total(self, of: Callable[[LayerGroup], float]) -> float:
        """Return the sum over all layers of what one layer of each group has."""
        return sum(group.count * of(group) for group in self.layers)
