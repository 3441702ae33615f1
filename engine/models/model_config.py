"""Shapes of the decoder models that the engine can run."""

import json
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources

from workloads.errors import EngineError


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

    name: str
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    """Whether the output head is the embedding matrix."""
    max_model_len: int = 131_072
    """Longest context, prompt and output together, in tokens."""

    @property
    def parameters(self) -> int:
        """Number of weights; a tied embedding counts once."""
        attention = 2 * self.hidden_size * self.head_dim * (self.heads + self.kv_heads)
        feed_forward = 3 * self.hidden_size * self.ffn_size
        norms = self.hidden_size * (2 * self.layers + 1)
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_embeddings else 2)
        return embeddings + self.layers * (attention + feed_forward) + norms

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Return the bytes of keys and values of one position over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * dtype_bytes


_FILE = resources.files("engine").joinpath("models/presets.json")
PRESETS = {entry["name"]: ModelConfig(**entry) for entry in json.loads(_FILE.read_text("utf-8"))}
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
