"""Which tensors of a checkpoint make which weights of the engine. Free of torch."""

from collections.abc import Iterator
from typing import NamedTuple

from engine.models.model_config import ModelConfig


class Part(NamedTuple):
    """A tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]


Stack = tuple[Part, ...]
"""Parts whose rows follow each other in one tensor of the engine."""

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def embedding(config: ModelConfig) -> Stack:
    """Return the rows of the vocabulary."""
    return (Part(EMBEDDING, (config.vocab_size, config.hidden_size)),)


def final_norm(config: ModelConfig) -> Stack:
    """Return the norm before the head."""
    return (Part(FINAL_NORM, (config.hidden_size,)),)


def head(config: ModelConfig) -> Stack:
    """Return the output head, which a tied model has none of."""
    return (Part(HEAD, (config.vocab_size, config.hidden_size)),)


def layer_norms(config: ModelConfig, layer: int) -> tuple[Stack, Stack]:
    """Return the norms before attention and before the feed-forward network."""
    prefix, shape = f"model.layers.{layer}", (config.hidden_size,)
    before_attention = (Part(f"{prefix}.input_layernorm.weight", shape),)
    return before_attention, (Part(f"{prefix}.post_attention_layernorm.weight", shape),)


def attention(config: ModelConfig, layer: int) -> dict[str, Stack]:
    """Return the parts of each field of ``AttentionWeights`` that the model has."""
    prefix = f"model.layers.{layer}.self_attn"
    query, shared = config.heads * config.head_dim, config.kv_heads * config.head_dim
    rows = {"q_proj": query, "k_proj": shared, "v_proj": shared}
    width, hidden = config.head_dim, config.hidden_size
    parts = {
        "qkv": tuple(Part(f"{prefix}.{n}.weight", (size, hidden)) for n, size in rows.items()),
        "out": (Part(f"{prefix}.o_proj.weight", (hidden, query)),),
    }
    if config.qkv_bias:
        parts["qkv_bias"] = tuple(Part(f"{prefix}.{n}.bias", (size,)) for n, size in rows.items())
    if config.attention_out_bias:
        parts["out_bias"] = (Part(f"{prefix}.o_proj.bias", (hidden,)),)
    if config.qk_norm:
        parts["query_norm"] = (Part(f"{prefix}.q_norm.weight", (width,)),)
        parts["key_norm"] = (Part(f"{prefix}.k_norm.weight", (width,)),)
    return parts


def feed_forward(config: ModelConfig, layer: int) -> dict[str, Stack]:
    """Return the parts of each field of ``FeedForwardWeights`` of a layer with one network."""
    parts = _network(f"model.layers.{layer}.mlp", config.hidden_size, config.ffn_size)
    if config.ffn_bias:
        prefix = f"model.layers.{layer}.mlp"
        rows = (f"{prefix}.gate_proj.bias", f"{prefix}.up_proj.bias")
        parts["gate_up_bias"] = tuple(Part(name, (config.ffn_size,)) for name in rows)
        parts["down_bias"] = (Part(f"{prefix}.down_proj.bias", (config.hidden_size,)),)
    return parts


def _network(prefix: str, hidden: int, width: int) -> dict[str, Stack]:
    gate, up = (
        Part(f"{prefix}.{name}.weight", (width, hidden)) for name in ("gate_proj", "up_proj")
    )
    return {"gate_up": (gate, up), "down": (Part(f"{prefix}.down_proj.weight", (hidden, width)),)}


def all_parts(config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor that a checkpoint of the model must have."""
    yield from (*embedding(config), *final_norm(config))
    if not config.tie_embeddings:
        yield from head(config)
    for layer in range(config.layers):
        for norm in layer_norms(config, layer):
            yield from norm
        for stacks in (attention(config, layer), feed_forward(config, layer)):
            for stack in stacks.values():
                yield from stack
