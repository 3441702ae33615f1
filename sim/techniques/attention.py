"""Techniques that change the attention of layers: fewer keys and values, or less to read of them.

Symbols in the formulas: L layers, h query heads, k KV heads, e head size, d width, l context.
"""

from math import ceil
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from servetwin.sim.catalogue.entry import Count
from servetwin.sim.catalogue.layers import Attention, Dense, LatentAttention, Mixer, Recurrence
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.techniques.setup import Setup
from servetwin.sim.techniques.technique import LONG_PROMPTS, Technique

# N: one layer in N stays as it is; None: all layers change.
OneIn = Annotated[int | None, Field(ge=2)]


class AttentionChange(Technique):
    """A technique that gives layers with softmax attention another mixer.

    ``keep`` names its parameter N by which one layer in N stays as it is.
    """

    keep: ClassVar[str | None] = None

    def change(self, attention: Attention, model: ModelShape) -> Mixer:
        """Return the mixer of a layer of ``model`` that had ``attention``.

        By default, attention with the parameters of the technique, ``keep`` left out.
        """
        return attention.model_copy(update={n: value for n, value in self if n != self.keep})

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with the softmax attention of its layers changed, but one in ``keep``.

        Raises ``PolicyError`` where no layer has any, or fewer layers than ``keep`` are equal.
        """
        model = setup.deployment.model
        keep: OneIn = getattr(self, self.keep) if self.keep else None
        counts = [g.count for g in model.layers if isinstance(g.mixer, Attention)]
        if not counts:
            raise self.refusal(f"{model.name} has no attention with key and value heads to change")
        if keep and keep > max(counts):
            raise self.refusal(
                f"one layer in {keep} cannot stay as it is, {model.name} has {max(counts)} equal "
                f"layers; at most one in {max(counts)}"
            )
        changed = model.with_layers(lambda group: self._changed(group, model, keep))
        return setup.with_deployment(model=changed)

    def _changed(self, group: LayerGroup, model: ModelShape, keep: OneIn) -> list[LayerGroup]:
        if not isinstance(group.mixer, Attention):
            return [group]
        unchanged = group.count // keep if keep else 0
        changed = self.change_layers(group, group.count - unchanged, group.mixer, model)
        return [changed, group.model_copy(update={"count": unchanged})] if unchanged else [changed]

    def change_layers(
        self, group: LayerGroup, count: int, attention: Attention, model: ModelShape
    ) -> LayerGroup:
        """Return ``count`` layers of ``group``, which had ``attention``, with another mixer."""
        new = {"count": count, "mixer": self.change(attention, model)}
        return group.model_copy(update=new)


class MultiQuery(AttentionChange):
    """One key and value head for all query heads; the model is trained so."""

    @property
    def shared_heads(self) -> int:
        """Return the key and value heads of a layer."""
        return 1

    def change(self, attention: Attention, model: ModelShape) -> Attention:
        """Return attention with so many; raise where they are more, or do not divide h."""
        kv_heads = self.shared_heads
        if kv_heads > attention.kv_heads or attention.heads % kv_heads:
            raise self.refusal(
                f"{kv_heads} kv_heads are not possible for {model.name}, which has "
                f"{attention.heads} heads and {attention.kv_heads} kv_heads; they must divide the "
                "former, and not exceed the latter"
            )
        return attention.model_copy(update={"kv_heads": kv_heads})

    def off(self, setup: Setup) -> Setup:
        """Return a model that comes with so many with multi-head attention; others as is."""
        return setup.with_deployment(model=setup.deployment.model.with_attentions(self._unshared))

    def _unshared(self, attention: Attention) -> Attention:
        shares = attention.kv_heads == self.shared_heads
        return attention.model_copy(update={"kv_heads": attention.heads}) if shares else attention


class GroupedQuery(MultiQuery):
    """``kv_heads`` k that the h query heads share evenly; the model is trained so.

    Off, a model that comes with ``kv_heads`` gets one for each query head.
    """

    kv_heads: Count = 8

    @property
    def shared_heads(self) -> int:
        """Return ``kv_heads``."""
        return self.kv_heads


class CrossLayer(AttentionChange):
    """``layers`` neighbouring layers keep one K and V between them; the model is trained so.

    Less is kept, but every layer still reads it: a decode step is not shorter at equal batch.
    """

    layers: Count = 2

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with shared keys; raise where ``layers`` does not divide a group."""
        model = setup.deployment.model
        for group in model.layers:
            if isinstance(group.mixer, Attention) and group.count % self.layers:
                raise self.refusal(
                    f"{group.count} equal layers of {model.name} cannot share keys and values by "
                    f"{self.layers}; layers must divide {group.count}"
                )
        return super().apply(setup)

    def change(self, attention: Attention, model: ModelShape) -> Attention:
        """Return attention that shares its keys and values with the neighbouring layers."""
        return attention.model_copy(update={"kv_sharing": self.layers})


class MultiHeadLatent(AttentionChange):
    """A latent of ``latent_dim`` and a key of ``rope_dim`` per token and layer replace K and V.

    A head's query and key have ``nope_dim`` + ``rope_dim`` elements, its value ``value_dim``. A
    model that has latent attention stays as it is; ``off`` gives it multi-head attention with heads
    of ``value_dim``.
    """

    latent_dim: Count | None = None
    rope_dim: Count | None = None
    nope_dim: Count | None = None
    value_dim: Count | None = None

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with latents; raise where the model has none and a dimension is open."""
        model = setup.deployment.model
        if any(isinstance(group.mixer, LatentAttention) for group in model.layers):
            return setup
        if missing := [name for name, value in self if value is None]:
            raise self.refusal(
                f"{model.name} has no latent attention; to give it some, say "
                f"{', '.join(missing)} (DeepSeek-V2: 512, 64, 128, 128)"
            )
        return super().apply(setup)

    def change(self, attention: Attention, model: ModelShape) -> LatentAttention:
        """Return latent attention with as many heads."""
        return LatentAttention(heads=attention.heads, **self.model_dump())

    def off(self, setup: Setup) -> Setup:
        """Return a latent model with full keys and values; any other as it is."""
        return setup.with_deployment(model=setup.deployment.model.with_mixers(_multi_head))


def _multi_head(mixer: Mixer) -> Mixer:
    if not isinstance(mixer, LatentAttention):
        return mixer
    return Attention(heads=mixer.heads, kv_heads=mixer.heads, head_dim=mixer.value_dim)


class SlidingWindow(AttentionChange):
    """A token sees, and a layer keeps, the last ``window_tokens`` only.

    ``global_every``: one of this many layers sees all tokens (a hybrid).
    """

    experiment = LONG_PROMPTS
    keep = "global_every"

    window_tokens: Count = 1024
    global_every: OneIn = None


class Dilated(AttentionChange):
    """A token sees every ``dilation``-th of the last ``window_tokens`` (None: of all) before it.

    All tokens of the window stay in memory: the next token sees what this one skips.
    """

    experiment = LONG_PROMPTS

    dilation: Count = 2
    window_tokens: Count | None = None


class Streaming(AttentionChange):
    """The first ``sink_tokens`` and the last ``window_tokens`` stay; no training is needed.

    The first tokens take the attention that no other token needs.
    """

    experiment = LONG_PROMPTS

    sink_tokens: Count = 4
    window_tokens: Count = 1024


class KVBudget(AttentionChange):
    """The last ``recent_tokens`` and the ``heavy_tokens`` with the most attention stay.

    The prompt itself is attended to in full; the others are dropped once it has been computed.
    Choosing them takes no time here.
    """

    experiment = LONG_PROMPTS

    recent_tokens: Count = 512
    heavy_tokens: Count = 512

    def change(self, attention: Attention, model: ModelShape) -> Attention:
        """Return attention with a budget of tokens."""
        budget = self.recent_tokens + self.heavy_tokens
        return attention.model_copy(update={"budget_tokens": budget})


_CONVOLVED_TOKENS = 4
_BLOCKS_PER_LAYER = 2


class StateSpace(AttentionChange):
    """Mamba blocks of inner width E = ``expand`` d with ``state_dim`` N numbers per channel.

    ``expand`` None: as wide as makes the model as large as it was. ``ffn=replaced``: two blocks
    take the place of an attention and its FFN, as in Mamba; ``kept``: one that of the attention, as
    in Jamba. ``attention_every``: one of this many layers stays as it is. A weak associative recall
    is the price.
    """

    keep = "attention_every"

    state_dim: Count = 16
    expand: Count | None = None
    ffn: Literal["replaced", "kept"] = "replaced"
    attention_every: OneIn = None

    def apply(self, setup: Setup) -> Setup:
        """Return the setup with the blocks; raise where there is no attention to replace."""
        mixed = super().apply(setup)
        named = {"name": f"{setup.deployment.model.name} as Mamba blocks"}
        return mixed.with_deployment(model=mixed.deployment.model.model_copy(update=named))

    def change_layers(
        self, group: LayerGroup, count: int, attention: Attention, model: ModelShape
    ) -> LayerGroup:
        """Return the blocks in the place of ``count`` layers.

        Raises ``PolicyError`` where a mixture of experts would be replaced.
        """
        params = attention.params(model.width)
        if self.ffn == "kept":
            new = {"count": count, "mixer": self._block(params, model)}
            return group.model_copy(update=new)
        if not isinstance(group.ffn, Dense):
            raise self.refusal(
                f"ffn: blocks as large as the experts of {model.name} would compute all that these "
                "skip; set ffn=kept"
            )
        params = (params + group.ffn.params(model.width)) / _BLOCKS_PER_LAYER
        blocks = {"count": _BLOCKS_PER_LAYER * count, "mixer": self._block(params, model)}
        return group.model_copy(update={**blocks, "ffn": Dense(width=0, matrices=0)})

    def _block(self, params: float, model: ModelShape) -> Recurrence:
        """Return a block of about ``params`` weights, or of ``expand`` times the width.

        Its weights are those of two projections inwards and one outwards, of the step, B and C, the
        convolution, A and D: as many for each channel of the inner width.
        """
        step_rank = ceil(model.width / 16)
        selective = 2 * step_rank + 2 * self.state_dim
        per_channel = 3 * model.width + selective + _CONVOLVED_TOKENS + self.state_dim + 1
        inner = max(1, round(params / per_channel))
        if self.expand is not None:
            inner = self.expand * model.width
        return Recurrence(state_size=inner * self.state_dim, mixer_params=inner * per_channel)


class LinearAttention(AttentionChange):
    """Without a softmax, keys and values add up to one e x e matrix for each of the h heads.

    RetNet lets the sum decay. ``attention_every``: one of this many layers keeps its softmax.
    """

    keep = "attention_every"

    attention_every: OneIn = None

    def change(self, attention: Attention, model: ModelShape) -> Recurrence:
        """Return the recurrent mixer with as many heads and four projections."""
        heads, head_dim = attention.heads, attention.head_dim
        params = 4 * model.width * heads * head_dim
        return Recurrence(state_size=heads * head_dim**2, mixer_params=params)
