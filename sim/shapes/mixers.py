"""What a layer does along the sequence: attention in its variants, or a constant state.

Symbols as in ``docs/techniques``: d width, h query heads, k KV heads, e head size, l context
length. "Elements" are numbers; what a number weighs in bytes is the format's business.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from sim.shapes.part import Count, Part


class Attention(Part):
    """Softmax attention with h query and k KV heads: MHA where k = h, MQA where k = 1, else GQA.

    ``window_tokens`` bounds what a query sees (and what stays resident) to the last tokens, beside
    ``sink_tokens`` first ones; ``dilation`` reads every so many-th of them. ``kv_sharing`` layers
    keep one K and V between them (CLA). ``budget_tokens`` bounds what stays resident after the
    prompt, by dropping (H2O); the prompt itself is attended to in full. ``rank`` r keeps K and V of
    a sequence as products of an l x r and an r x k e matrix each.
    Shazeer 2019 (MQA), Ainslie 2023 (GQA), Brandon 2024 (CLA), Beltagy 2020 (windows).
    """

    kind: Literal["attention"] = "attention"
    state_passes: ClassVar[int] = 1  # the small factors are read, and never written by a decode
    heads: Count
    kv_heads: Count
    head_dim: Count
    window_tokens: Count | None = None
    sink_tokens: Annotated[int, Field(ge=0)] = 0
    dilation: Count = 1
    kv_sharing: Count = 1
    budget_tokens: Count | None = None
    rank: Count | None = None

    @model_validator(mode="after")
    def _kv_heads_are_shared_evenly(self) -> "Attention":
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        return self

    def params(self, width: int) -> float:
        """Weights: q and out d h e each, k and v d k e each (over the layers that share them)."""
        own = 2 * width * self.heads * self.head_dim
        return own + 2 * width * self.kv_heads * self.head_dim / self.kv_sharing

    def kv_elements(self) -> float:
        """Elements of K and V per token and layer: 2 k e, or 2 r."""
        return 2 * (self.rank or self.kv_heads * self.head_dim) / self.kv_sharing

    def state_elements(self) -> float:
        """Elements that a sequence keeps whatever its length: the small factors, 2 r k e."""
        return 2 * (self.rank or 0) * self.kv_heads * self.head_dim / self.kv_sharing

    def resident_limit(self) -> int | None:
        """Most tokens that stay in memory; None where all do."""
        bounds = [] if self.budget_tokens is None else [self.budget_tokens]
        if self.window_tokens is not None:
            bounds.append(self.window_tokens + self.sink_tokens)
        return min(bounds, default=None)

    def kv_groups(self) -> int:
        """Independent pieces of K and V per sequence, a thread block each: the KV heads."""
        return self.kv_heads

    def flops_per_pair(self) -> float:
        """FLOPs of a query token and a key token: 2 h e for the score, 2 h e for its value."""
        return 4.0 * self.heads * self.head_dim

    def decode_flops_per_pair(self) -> float:
        """The same in decode, where a low rank has r in place of e."""
        return 4.0 * self.heads * (self.rank or self.head_dim)


class LatentAttention(Part):
    """Multi-head latent attention: one latent of ``latent_dim`` and a RoPE key per token.

    Decode runs in latent space, the up-projections absorbed. DeepSeek-V2 (2024), section 2.1.
    """

    kind: Literal["latent"] = "latent"
    state_passes: ClassVar[int] = 0
    heads: Count
    latent_dim: Count
    rope_dim: Annotated[int, Field(ge=0)]
    nope_dim: Count
    value_dim: Count
    query_latent_dim: Count | None = None

    def params(self, width: int) -> float:
        """Weights of the query, latent, up and out projections."""
        query_dim = self.heads * (self.nope_dim + self.rope_dim)
        latent = self.query_latent_dim
        query = width * query_dim if latent is None else latent * (width + query_dim)
        down = width * (self.latent_dim + self.rope_dim)
        up = self.latent_dim * self.heads * (self.nope_dim + self.value_dim)
        return float(query + down + up + self.heads * self.value_dim * width)

    def kv_elements(self) -> float:
        """Elements per token and layer: the latent and the RoPE key."""
        return float(self.latent_dim + self.rope_dim)

    def state_elements(self) -> float:
        """Elements that a sequence keeps whatever its length."""
        return 0.0

    def resident_limit(self) -> int | None:
        """All tokens stay in memory."""
        return None

    def kv_groups(self) -> int:
        """Every head reads the same latent."""
        return 1

    def flops_per_pair(self) -> float:
        """FLOPs of a query token and a key token in prefill, up-projected."""
        return 2.0 * self.heads * (self.nope_dim + self.rope_dim + self.value_dim)

    def decode_flops_per_pair(self) -> float:
        """FLOPs per cached token in latent space: h (2 d_c + d_rope) 2."""
        return 2.0 * self.heads * (2 * self.latent_dim + self.rope_dim)


class Recurrence(Part):
    """A constant state instead of keys and values: SSM (Mamba), linear attention, RetNet, RWKV.

    ``state_size`` elements per sequence and layer are read and written for every token;
    ``mixer_params`` are its weights.
    """

    kind: Literal["recurrence"] = "recurrence"
    state_passes: ClassVar[int] = 2
    state_size: Count
    mixer_params: Count

    def params(self, width: int) -> float:
        """Weights of the layer."""
        return float(self.mixer_params)

    def kv_elements(self) -> float:
        """Nothing is kept per token."""
        return 0.0

    def state_elements(self) -> float:
        """Elements that a sequence keeps whatever its length."""
        return float(self.state_size)

    def resident_limit(self) -> int | None:
        """Nothing is kept per token."""
        return None

    def kv_groups(self) -> int:
        """No keys and values."""
        return 1

    def flops_per_pair(self) -> float:
        """No token looks at another."""
        return 0.0

    def decode_flops_per_pair(self) -> float:
        """No token looks at another."""
        return 0.0


Mixer = Annotated[Attention | LatentAttention | Recurrence, Field(discriminator="kind")]
