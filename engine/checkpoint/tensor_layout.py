"""Which tensors of a checkpoint make which weights of the engine. Free of torch."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from servetwin.engine.models.model_config import ModelConfig


class Rotated(NamedTuple):
    """Rows that come in groups (of a head each), of which the last turn with the position.

    In a checkpoint the two rows of a pair stand together, in the engine in two halves.
    """

    group_rows: int
    rope_rows: int


class Part(NamedTuple):
    """A tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]
    rotated: Rotated | None = None
    """Where its pairs have to be put apart."""


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


def latent_attention(config: ModelConfig, layer: int) -> dict[str, Stack]:
    """Return the parts of each field of ``LatentWeights`` that the model has."""
    latent, prefix = config.latent, f"model.layers.{layer}.self_attn"
    assert latent is not None
    hidden, stored = config.hidden_size, latent.rank + latent.rope_dim
    queries, values = config.heads * config.head_dim, config.heads * latent.value_dim
    up = config.heads * (config.head_dim - latent.rope_dim) + values
    of_query = Rotated(config.head_dim, latent.rope_dim)
    of_latent = Rotated(stored, latent.rope_dim)
    rank = latent.query_rank

    def one(name: str, *shape: int, rotated: Rotated | None = None) -> Stack:
        return (Part(f"{prefix}.{name}.weight", shape, rotated),)

    parts = {
        "latent": one("kv_a_proj_with_mqa", stored, hidden, rotated=of_latent),
        "latent_norm": one("kv_a_layernorm", latent.rank),
        "latent_up": one("kv_b_proj", up, latent.rank),
        "out": one("o_proj", hidden, values),
    }
    if rank is None:
        return parts | {"query": one("q_proj", queries, hidden, rotated=of_query)}
    return parts | {
        "query_down": one("q_a_proj", rank, hidden),
        "query_norm": one("q_a_layernorm", rank),
        "query": one("q_b_proj", queries, rank, rotated=of_query),
    }


def feed_forward(config: ModelConfig, layer: int) -> dict[str, Stack]:
    """Return the parts of each field of ``FeedForwardWeights`` of a layer with one network."""
    parts = _network(f"model.layers.{layer}.mlp", config.hidden_size, config.ffn_size)
    if config.ffn_bias:
        prefix = f"model.layers.{layer}.mlp"
        rows = (f"{prefix}.gate_proj.bias", f"{prefix}.up_proj.bias")
        parts["gate_up_bias"] = tuple(Part(name, (config.ffn_size,)) for name in rows)
        parts["down_bias"] = (Part(f"{prefix}.down_proj.bias", (config.hidden_size,)),)
    return parts


class ExpertNames(NamedTuple):
    """How a family of checkpoints calls the parts of its experts."""

    room: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


MIXTRAL = ExpertNames("block_sparse_moe", "w1", "w3", "w2")


class ExpertStacks(NamedTuple):
    """The parts of ``ExpertWeights``; ``choice_bias`` is read in float32."""

    router: Stack
    experts: list[dict[str, Stack]]
    shared: dict[str, Stack] | None
    choice_bias: Stack | None

    def all(self) -> Iterator[Stack]:
        """Yield every stack."""
        yield self.router
        for network in (*self.experts, self.shared or {}):
            yield from network.values()
        if self.choice_bias:
            yield self.choice_bias


def experts(config: ModelConfig, layer: int, names: ExpertNames) -> ExpertStacks:
    """Return the parts of a layer whose feed-forward network is divided."""
    of = config.experts
    assert of is not None
    prefix, hidden = f"model.layers.{layer}.{names.room}", config.hidden_size
    networks = [
        _network(f"{prefix}.experts.{index}", hidden, of.ffn_size, names)
        for index in range(of.experts)
    ]
    shared = _network(f"{prefix}.shared_experts", hidden, of.shared_size)
    bias = (Part(f"{prefix}.gate.e_score_correction_bias", (of.experts,)),)
    router = (Part(f"{prefix}.gate.weight", (of.experts, hidden)),)
    return ExpertStacks(
        router, networks, shared if of.shared_size else None, bias if of.choice_bias else None
    )


def _network(
    prefix: str,
    hidden: int,
    width: int,
    names: ExpertNames = ExpertNames(),  # noqa: B008
) -> dict[str, Stack]:
    rows = (f"{prefix}.{names.gate}.weight", f"{prefix}.{names.up}.weight")
    return {
        "gate_up": tuple(Part(name, (width, hidden)) for name in rows),
        "down": (Part(f"{prefix}.{names.down}.weight", (hidden, width)),),
    }


def expert_names(stored: Iterable[str]) -> ExpertNames:
    """Return what the tensors of a checkpoint call the parts of experts."""
    mixtral = any(f".{MIXTRAL.room}." in name for name in stored)
    return MIXTRAL if mixtral else ExpertNames()


def all_parts(config: ModelConfig, names: ExpertNames) -> Iterator[Part]:
    """Yield every tensor that a checkpoint of the model must have."""
    yield from (*embedding(config), *final_norm(config))
    if not config.tie_embeddings:
        yield from head(config)
    for layer in range(config.layers):
        for stack in _of_layer(config, layer, names):
            yield from stack


def _of_layer(config: ModelConfig, layer: int, names: ExpertNames) -> Iterator[Stack]:
    yield from layer_norms(config, layer)
    attends = latent_attention if config.latent else attention
    yield from attends(config, layer).values()
    if config.has_experts(layer):
        yield from experts(config, layer, names).all()
    else:
        yield from feed_forward(config, layer).values()
