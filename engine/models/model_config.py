"""Shapes of the decoder models that the engine can run."""

import json
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources

from servetwin.engine.models.layer_config import ExpertConfig, LatentConfig, RopeScaling
from servetwin.workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder: RMSNorm, rotary positions, SwiGLU, attention with shared key heads and biases."""

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
    """Whether the output head is the embedding matrix."""
    qkv_bias: bool = False
    attention_out_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    """Whether the queries and keys of each head are normed before they are rotated (Qwen3)."""
    windows: tuple[int | None, ...] = ()
    """How many tokens a query of each layer sees, its own included (None: all); empty: all."""
    sink_tokens: int = 0
    """First tokens that every query sees beside the window of its layer, each as if it stood right
    before it (StreamingLLM)."""
    latent: LatentConfig | None = None
    """Multi-head latent attention; then ``kv_heads`` is 1 and ``head_dim`` that of a query."""
    experts: ExpertConfig | None = None
    kv_sharing: int = 1
    """Neighbouring layers that have the keys and values of the first of them."""
    weight_sharing: int = 1
    """Neighbouring layers that have one set of weights."""
    max_model_len: int = 131_072
    """Longest context, prompt and output together, in tokens."""

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise self._error(f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly")
        if self.rotary_dim % 2:
            raise self._error(f"a rotary width of {self.rotary_dim} is not even")
        if len(self.windows) not in (0, self.layers):
            raise self._error(f"{len(self.windows)} windows for {self.layers} layers")
        if any(window is not None and window < 1 for window in self.windows):
            raise self._error("a window must be at least 1 token")
        if self.latent:
            self._check_latent(self.latent)
        self._check_sharing()

    @property
    def rotary_dim(self) -> int:
        """How many elements of a query or key head turn with the position."""
        return self.latent.rope_dim if self.latent else self.head_dim

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
        return self.layers // self.kv_sharing

    def stores(self, layer: int) -> bool:
        """Return whether the layer has keys and values of its own."""
        return layer % self.kv_sharing == 0

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Return the bytes of keys and values of one position over all layers."""
        tensors = 1 if self.latent else 2
        return tensors * self.stored_layers * self.kv_heads * self.key_dim * dtype_bytes

    def window(self, layer: int) -> int | None:
        """Return how many tokens a query of the layer sees; None: all."""
        return self.windows[layer] if self.windows else None

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

    def _error(self, what: str) -> EngineError:
        return EngineError(f"model {self.name}: {what}")


_FILE = resources.files("servetwin.engine").joinpath("models/presets.json")
_ENTRIES = json.loads(_FILE.read_text("utf-8"))
PRESETS = {entry["name"]: ModelConfig(**entry) for entry in _ENTRIES}
"""By name. ``llama-0.6b`` has the shape of Qwen3-0.6B without its query and key norms, ``llama-1b``
that of Llama-3.2-1B, ``llama-8b`` that of Llama-3.1-8B.
"""

DEFAULT_PRESET = "base"


def model_preset(name: str = DEFAULT_PRESET) -> ModelConfig:
    """Return the preset called ``name``; the error for an unknown name gives the nearest one."""
    if name in PRESETS:
        return PRESETS[name]
    nearest = get_close_matches(name, PRESETS, n=1, cutoff=0.0)[0]
    known = ", ".join(PRESETS)
    raise EngineError(f"unknown model {name!r}: did you mean {nearest!r}? (known: {known})")
