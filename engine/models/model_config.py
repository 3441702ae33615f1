"""Shapes of the decoder models that the engine can run.

Parts of a shape are latent attention, experts, and layers with a state.
"""

from dataclasses import dataclass, replace
from typing import Literal

from servetwin.engine.models.rope_scaling import RopeScaling
from servetwin.workloads.errors import EngineError, require_name
from servetwin.workloads.models.description import StateSizes
from servetwin.workloads.program.package import shipped_json


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Keys and values of all heads are products of one latent per token (arXiv 2405.04434).

    Of each query head, the first ``head_dim - rope_dim`` elements meet keys made of the latent,
    the others one rotated key that all heads share.

    ``rank``: width of the latent. ``value_dim``: width of a value head. ``query_rank``: width of
    the latent that the queries are made of; None: they are made of the hidden state. ``norm_eps``:
    of the norms of both latents, which DeepSeek's code leaves at this.
    """

    rank: int
    rope_dim: int
    value_dim: int
    query_rank: int | None = None
    norm_eps: float = 1e-6


# Of a head: the order of its elements is listed.
_MOST_WIDTH = 1 << 16
Scoring = Literal["softmax", "sigmoid"]
Activation = Literal["silu", "gelu_tanh", "gelu", "relu", "relu2"]


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """A router and its experts: Mixtral, Qwen3-MoE, DeepSeek-V2 (arXiv 2405.04434) and V3.

    ``top_k``: experts that each token uses. ``ffn_size``: width of one expert. ``shared_size``:
    width of the network beside the experts, which every token uses; 0: none. ``shared_gate``:
    whether what it adds is multiplied by the sigmoid of a product of its own (Qwen2-MoE).
    ``stacked``: whether a checkpoint has the networks of all experts in one tensor, ``turned``:
    [experts, input, output]. ``scales_inputs``: whether the weight of an expert multiplies the row
    that enters it (Llama 4). ``biased``: whether router and experts have biases; rows of gate and
    up then alternate (gpt-oss). ``gate_limit``: where gates end, and the up part on both sides,
    which then counts from -1 (gpt-oss). ``dense_layers``: layers with one network of the model's
    ``ffn_size`` instead. ``choice_bias``: whether each expert has a bias that counts for the
    choice, and not for the weight (V3). ``normalise``: whether the weights of a token's experts add
    up to 1, before ``scale``. ``scale``: what the weights of the experts are multiplied by.
    ``top_groups``: groups from which a token's experts may come: those whose best experts score
    highest. ``group_scorers``: best experts of a group whose scores are added (V2: 1, V3: 2).
    """

    experts: int
    top_k: int
    ffn_size: int
    shared_size: int = 0
    shared_gate: bool = False
    stacked: bool = False
    turned: bool = False
    scales_inputs: bool = False
    biased: bool = False
    gate_limit: float | None = None
    dense_layers: tuple[int, ...] = ()
    scoring: Scoring = "softmax"
    choice_bias: bool = False
    normalise: bool = True
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1
    group_scorers: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.experts:
            raise EngineError(
                f"experts: top_k {self.top_k} of {self.experts} experts is impossible"
            )
        if self.experts % self.groups or not 1 <= self.top_groups <= self.groups:
            raise EngineError(
                f"experts: {self.top_groups} of {self.groups} groups of {self.experts} experts "
                "are impossible"
            )
        size = self.experts // self.groups
        if self.group_scorers > size or self.top_k > size * self.top_groups:
            raise EngineError(f"experts: groups of {size} are too small")


@dataclass(frozen=True, slots=True)
class StateSpaceConfig:
    """Mamba 2 in place of attention (Dao and Gu 2024, arXiv 2405.21060), in some ``layers``.

    ``convolution_bias``, ``product_bias``: whether convolution and products have biases.
    """

    layers: tuple[int, ...]
    sizes: StateSizes
    convolution_bias: bool = True
    product_bias: bool = False

    def __post_init__(self) -> None:
        if self.sizes.heads % self.sizes.groups:
            raise EngineError(
                f"n_groups {self.sizes.groups} does not divide the {self.sizes.heads} heads of a "
                "state"
            )


@dataclass(frozen=True, slots=True)
class Norms:
    """The norms of a layer, by what a checkpoint calls them; None: the layer has no such norm.

    ``after_attention``: of what attention adds to the hidden state (Gemma, GLM-4, OLMo 2).
    ``parallel``: whether the network reads the hidden state that attention reads, by a norm of its
    own or by that of attention (Cohere). ``centred``: whether rows lose their mean first
    (LayerNorm). ``plus_one``: whether the checkpoint has the weights less 1 (Gemma).
    """

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_ffn: str | None = "post_attention_layernorm"
    after_ffn: str | None = None
    parallel: bool = False
    centred: bool = False
    biased: bool = False
    plus_one: bool = False


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder: norms, rotary positions, gated networks, attention with shared key heads.

    ``tie_embeddings``: whether the output head is the embedding matrix. ``qk_norm``: whether the
    queries and keys of each head are normed before they are rotated (Qwen3). ``whole_qk_norm``:
    whether all query heads are normed together, and all key heads, instead (OLMo 2).
    ``bare_qk_norm``: whether heads that turn are normed without weights (Llama 4).
    ``activation``: of the gate of a feed-forward network, or of what one without a gate has inside.
    ``more_positions``: learned positions are added to the embedding, from this one of their table
    on (OPT: 2); it has so many more than ``max_model_len``. None: there are none.
    ``residual_scale``: what the outputs of attention and network are multiplied by before they are
    added. ``score_scale``: what products of queries and keys are multiplied by; None: 1 /
    sqrt(head_dim). ``logit_cap``: c: logits x become c tanh(x / c) (Gemma 2). ``score_cap``: the
    same of the scores of attention. ``alibi``: whether each head lowers its scores by the distance
    (Press 2021, arXiv 2108.12409). ``learned_sinks``: whether each head has a score of its own that
    takes attention from all keys (gpt-oss).
    ``rotary_share``: the part of each head that turns with the position, its first elements.
    ``neighbour_pairs``: whether elements that turn together are neighbours in the checkpoint, not
    half a head apart. ``layer_thetas``: ``rope_theta`` of each layer, stretched only where it is
    the model's (None: no positions); empty: the model's. ``fused``: weights that are one tensor in
    the checkpoint: ``qkv``, ``gate_up``; ``by group``: in the former the rows of a key head, and of
    its value head, follow its query heads. ``transposed``: whether the checkpoint has the matrices
    of layers as [input, output] (GPT-2). ``names``: what the checkpoint calls parts of the names of
    Llama's tensors, replaced one by one. ``windows``: how many tokens a query of each layer sees,
    its own included (None: all); empty: all. ``sink_tokens``: first tokens that every query sees
    beside the window of its layer, each as if it stood right before it (StreamingLLM). ``latent``:
    multi-head latent attention; then ``kv_heads`` is 1 and ``head_dim`` that of a query.
    ``state_space``: layers that keep a state in place of keys and values. ``ffn_size`` 0: no layer
    has a feed-forward network. ``blocks``: where a checkpoint counts networks as layers
    (Nemotron-H): the place of each layer's mixer, before that of its network if it has one, and the
    number of all.
    ``kv_sharing``: neighbouring layers that have the keys and values of the first of them.
    ``weight_sharing``: neighbouring layers that have one set of weights. ``max_model_len``: longest
    context, prompt and output together, in tokens.
    """

    name: str
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    qkv_bias: bool = False
    attention_out_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    whole_qk_norm: bool = False
    bare_qk_norm: bool = False
    norms: Norms = Norms()
    activation: Activation = "silu"
    gated: bool = True
    more_positions: int | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    score_scale: float | None = None
    logit_scale: float = 1.0
    logit_cap: float | None = None
    score_cap: float | None = None
    alibi: bool = False
    learned_sinks: bool = False
    rotary_share: float = 1.0
    neighbour_pairs: bool = False
    layer_thetas: tuple[float | None, ...] = ()
    fused: tuple[str, ...] = ()
    transposed: bool = False
    names: tuple[tuple[str, str], ...] = ()
    windows: tuple[int | None, ...] = ()
    sink_tokens: int = 0
    latent: LatentConfig | None = None
    state_space: StateSpaceConfig | None = None
    experts: ExpertConfig | None = None
    kv_sharing: int = 1
    weight_sharing: int = 1
    blocks: tuple[int, ...] = ()
    max_model_len: int = 131_072

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise self._error(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        if (width := max(self.head_dim, self.key_dim)) > _MOST_WIDTH:
            raise self._error(f"a head of {width} elements is above {_MOST_WIDTH:,}")
        if self.rotary_dim % 2 or self.rotary_width % 2:
            raise self._error(f"a rotary width of {self.rotary_dim} is not even")
        if self.rotary_share > 1:
            raise self._error(f"{self.rotary_share:g} of a head cannot turn: use at most 1")
        if (
            self.rotary_dim < self.rotary_width
            and self.rope_scaling
            and self.rope_scaling.magnitude != 1
        ):
            raise self._error("heads that turn in part cannot be sharpened (yarn)")
        if len(self.layer_thetas) not in (0, self.layers):
            raise self._error(f"{len(self.layer_thetas)} layer_thetas for {self.layers} layers")
        if len(self.windows) not in (0, self.layers):
            raise self._error(f"{len(self.windows)} windows for {self.layers} layers")
        if any(window is not None and window < 1 for window in self.windows):
            raise self._error("a window must be at least 1 token")
        if self.latent:
            self._check_latent(self.latent)
        self._check_sharing()

    @property
    def rotary_width(self) -> int:
        """How many elements of a query or key head are in the table of turns."""
        return self.latent.rope_dim if self.latent else self.head_dim

    @property
    def rotary_dim(self) -> int:
        """How many of them turn with the position."""
        return int(self.rotary_width * self.rotary_share)

    @property
    def key_dim(self) -> int:
        """Width of what is stored of a token and key head, as key and again as value.

        A latent is stored once, and read as both.
        """
        return self.latent.rank + self.latent.rope_dim if self.latent else self.head_dim

    @property
    def distinct_layers(self) -> range:
        """The layers that have weights of their own."""
        return range(0, self.layers, self.weight_sharing)

    @property
    def stored_layers(self) -> int:
        """How many layers have keys and values of their own."""
        states = len(self.state_space.layers) if self.state_space else 0
        return (self.layers - states) // self.kv_sharing

    def keeps_state(self, layer: int) -> bool:
        """Return whether the layer keeps a state in place of keys and values."""
        return self.state_space is not None and layer in self.state_space.layers

    @property
    def kv_groups(self) -> str:
        """The groups of layers that keep the same, as the policies name them."""
        if not self.state_space:
            return "full"
        return "full,state" if self.stored_layers else "state"

    def stores(self, layer: int) -> bool:
        """Return whether the layer has keys and values of its own."""
        return layer % self.kv_sharing == 0

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Return the bytes of keys and values of one position over all layers."""
        tensors = 1 if self.latent else 2
        return tensors * self.stored_layers * self.kv_heads * self.key_dim * dtype_bytes

    @property
    def plain_layers(self) -> bool:
        """Whether layers differ from Llama's in nothing but biases, windows and head norms."""
        scales = {self.embedding_scale, self.residual_scale, self.logit_scale}
        others = self.norms, self.activation, self.logit_cap, self.more_positions
        own = self.whole_qk_norm or self.bare_qk_norm or self.layer_thetas or self.state_space
        plain = scales == {1.0} and others == (Norms(), "silu", None, None) and not own
        plain = plain and self.gated
        return plain and self.plain_scores

    @property
    def plain_scores(self) -> bool:
        """Whether scores are scaled products, of all keys or those in a window."""
        return self.score_cap is None and not (self.alibi or self.learned_sinks)

    def turned(self, theta: float | None) -> "ModelConfig":
        """Return the model with one of ``layer_thetas`` in all layers."""
        if theta == self.rope_theta:
            return self
        if theta is None:
            return replace(self, rotary_share=0.0, rope_scaling=None)
        return replace(self, rope_theta=theta, rope_scaling=None)

    def window(self, layer: int) -> int | None:
        """Return how many tokens a query of the layer sees; None: all."""
        return self.windows[layer] if self.windows else None

    def has_ffn(self, layer: int) -> bool:
        """Return whether the layer has a feed-forward network behind its mixer."""
        if self.blocks:
            return self.blocks[layer + 1] - self.blocks[layer] > 1
        return self.ffn_size > 0

    def has_experts(self, layer: int) -> bool:
        """Return whether the feed-forward network of the layer is divided into experts."""
        return self.experts is not None and layer not in self.experts.dense_layers

    def _check_latent(self, latent: LatentConfig) -> None:
        if self.kv_heads != 1 or latent.rope_dim >= self.head_dim:
            raise self._error("latent attention has one kv head, and rope_dim below head_dim")
        if self.qkv_bias or self.attention_out_bias or self.qk_norm:
            raise self._error("latent attention has neither biases nor norms of queries and keys")

    def _check_sharing(self) -> None:
        for name in ("kv_sharing", "weight_sharing"):
            shared = getattr(self, name)
            if shared < 1 or self.layers % shared:
                raise self._error(f"{name} {shared} does not divide {self.layers} layers")
        if self.kv_sharing > 1 and (self.latent or self.weight_sharing > 1):
            raise self._error("layers with one latent or with shared weights share no keys")
        shares = max(self.kv_sharing, self.weight_sharing) > 1
        if self.state_space and (shares or self.latent or self.windows):
            raise self._error("layers beside those with a state share nothing, and see all")

    def _error(self, what: str) -> EngineError:
        return EngineError(f"model {self.name}: {what}")


_ENTRIES = shipped_json("engine/models/presets.json")
# By name. ``llama-0.6b`` has the shape of Qwen3-0.6B without its query and key norms, ``llama-1b``
# that of Llama-3.2-1B, ``llama-8b`` that of Llama-3.1-8B.
PRESETS = {entry["name"]: ModelConfig(**entry) for entry in _ENTRIES}

DEFAULT_PRESET = "base"


def model_preset(name: str = DEFAULT_PRESET) -> ModelConfig:
    """Return the preset called ``name``; the error for an unknown name gives the nearest one."""
    require_name(name, PRESETS, "unknown model", EngineError)
    return PRESETS[name]
