"""The two parts of a layer: one mixes tokens, one computes each token alone.

Tokens are mixed by attention in its variants, or by a constant state.

Symbols as in ``docs/techniques``: d width, h query heads, k KV heads, e head size, l context
length. "Elements" are numbers; their bytes depend on the number format.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from servetwin.sim.catalogue.entry import Count, FrozenModel


class MixerShape(FrozenModel):
    """Base of mixers: by default one keeps nothing and compares no tokens.

    ``state_passes``: how often a decode step moves the state, 2 where it is read and written.
    """

    state_passes: ClassVar[int] = 0

    def kv_elements(self) -> float:
        """Return the elements of keys and values per token and layer."""
        return 0.0

    def state_elements(self) -> float:
        """Return the elements that a sequence keeps per layer whatever its length."""
        return 0.0

    def resident_limit(self) -> int | None:
        """Return the most tokens that stay in memory; None where all do."""
        return None

    def resident_tokens(self, context_tokens: int) -> int:
        """Return how many tokens of a context stay in memory."""
        limit = self.resident_limit()
        return context_tokens if limit is None else min(context_tokens, limit)

    def kv_groups(self) -> int:
        """Return the independent pieces of K and V per sequence, each for one thread block."""
        return 1

    def flops_per_pair(self) -> float:
        """Return the FLOPs of a query token and a key token in prefill."""
        return 0.0

    def decode_flops_per_pair(self) -> float:
        """Return the FLOPs of a query token and a key token in decode."""
        return self.flops_per_pair()


class Attention(MixerShape):
    """Softmax attention with h query and k KV heads: MHA where k = h, MQA where k = 1, else GQA.

    ``window_tokens`` bounds what a query sees (and what stays resident) to the last tokens, beside
    ``sink_tokens`` first ones; ``chunked``, to those of the chunk of so many that it lies in (Llama
    4); with ``dilation`` d only each d-th is read. ``kv_sharing`` layers
    keep one K and V between them (CLA). ``gated``: a gate as wide as the queries multiplies the
    output. ``budget_tokens`` bounds what stays resident after the
    prompt, by dropping (H2O); the prompt itself is attended to in full. ``rank`` r keeps K and V of
    a sequence as products of an l x r and an r x k e matrix each, but for ``whole_tokens`` W that
    are kept as they are (charged from the first one on).
    Shazeer 2019 (MQA), Ainslie 2023 (GQA), Brandon 2024 (CLA), Beltagy 2020 (windows).
    """

    kind: Literal["attention"] = "attention"
    state_passes: ClassVar[int] = 1  # the small factors are read, and never written by a decode
    heads: Count
    kv_heads: Count
    head_dim: Count
    window_tokens: Count | None = None
    sink_tokens: Annotated[int, Field(ge=0)] = 0
    chunked: bool = False
    dilation: Count = 1
    kv_sharing: Count = 1
    gated: bool = False
    budget_tokens: Count | None = None
    rank: Count | None = None
    whole_tokens: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _kv_heads_are_shared_evenly(self) -> "Attention":
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        return self

    def params(self, width: int) -> float:
        """Return the number of weights: q, out and a gate d h e each, k and v d k e each.

        Layers that share keys and values divide the latter.
        """
        unshared = (2 + self.gated) * width * self.heads * self.head_dim
        return unshared + 2 * width * self.kv_heads * self.head_dim / self.kv_sharing

    def kv_elements(self) -> float:
        """Return the elements of K and V per token and layer: 2 k e, or 2 r."""
        return 2 * (self.rank or self.kv_heads * self.head_dim) / self.kv_sharing

    def state_elements(self) -> float:
        """Return the elements of a low rank beside 2 r per token: 2 r k e + 2 (k e - r) W."""
        if self.rank is None:
            return 0.0
        width = self.kv_heads * self.head_dim
        factors, whole = self.rank * width, (width - self.rank) * self.whole_tokens
        return 2 * (factors + whole) / self.kv_sharing

    def resident_limit(self) -> int | None:
        """Return the most tokens that windows and budgets leave in memory; None where all stay."""
        bounds = [] if self.budget_tokens is None else [self.budget_tokens]
        if self.window_tokens is not None:
            bounds.append(self.window_tokens + self.sink_tokens)
        return min(bounds, default=None)

    def kv_groups(self) -> int:
        """Return the number of KV heads."""
        return self.kv_heads

    def flops_per_pair(self) -> float:
        """Return 4 h e: 2 h e for the score of a pair of tokens, 2 h e for its value."""
        return 4.0 * self.heads * self.head_dim

    def decode_flops_per_pair(self) -> float:
        """Return 4 h e, or 4 h r where a low rank r replaces e."""
        return 4.0 * self.heads * (self.rank or self.head_dim)


class LatentAttention(MixerShape):
    """Multi-head latent attention: one latent of ``latent_dim`` and a RoPE key per token.

    Decode runs in latent space, the up-projections absorbed. ``compression``: one latent stands for
    so many tokens. DeepSeek-V2 (2024), section 2.1.
    """

    kind: Literal["latent"] = "latent"
    heads: Count
    latent_dim: Count
    rope_dim: Annotated[int, Field(ge=0)]
    nope_dim: Count
    value_dim: Count
    query_latent_dim: Count | None = None
    compression: Count = 1

    def params(self, width: int) -> float:
        """Return the number of weights of the query, latent, up and out projections."""
        query_dim = self.heads * (self.nope_dim + self.rope_dim)
        latent = self.query_latent_dim
        query = width * query_dim if latent is None else latent * (width + query_dim)
        down = width * (self.latent_dim + self.rope_dim)
        up = self.latent_dim * self.heads * (self.nope_dim + self.value_dim)
        return float(query + down + up + self.heads * self.value_dim * width)

    def kv_elements(self) -> float:
        """Return the elements of the latent and the RoPE key per token and layer."""
        return (self.latent_dim + self.rope_dim) / self.compression

    def flops_per_pair(self) -> float:
        """Return 2 h (d_nope + d_rope + d_value): in prefill, keys and values are up-projected."""
        return (
            2.0 * self.heads * (self.nope_dim + self.rope_dim + self.value_dim) / self.compression
        )

    def decode_flops_per_pair(self) -> float:
        """Return 2 h (2 d_c + d_rope): decode stays in latent space."""
        return 2.0 * self.heads * (2 * self.latent_dim + self.rope_dim) / self.compression


class Recurrence(MixerShape):
    """A constant state instead of keys and values: SSM (Mamba), linear attention, RetNet, RWKV.

    ``state_size`` elements per sequence and layer are read and written for every token;
    ``mixer_params`` are its weights.
    """

    kind: Literal["recurrence"] = "recurrence"
    state_passes: ClassVar[int] = 2
    state_size: Count
    mixer_params: Count

    def params(self, width: int) -> float:
        """Return ``mixer_params``."""
        return float(self.mixer_params)

    def state_elements(self) -> float:
        """Return ``state_size``."""
        return float(self.state_size)


# The part of a layer that mixes positions.
Mixer = Annotated[Attention | LatentAttention | Recurrence, Field(discriminator="kind")]


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
    """A router and ``experts`` FFNs; each token uses ``top_k`` of them and a shared one.

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


# The part of a layer that works on each position by itself.
FeedForward = Annotated[Dense | Experts, Field(discriminator="kind")]
