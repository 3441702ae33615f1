"""The weights of a decoder as data: the name and the shape of each, and the tensors of a checkpoint
that make it. Free of torch.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple

from servetwin.engine.models.model_config import ModelConfig


class Rotated(NamedTuple):
    """Rows that come in groups, one for each head; the last ones turn with the position.

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
"""Parts whose rows follow each other in one weight of the engine."""
Stacks = dict[str, Stack]
"""Stacks by the name of the weight, in the order in which random ones are drawn."""

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
CHOICE_BIAS = "choice_bias"
"""The weight of a router that is in float32 whatever the number format of the others."""


class ExpertNames(NamedTuple):
    """How a family of checkpoints calls the parts of its experts."""

    room: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


PLAIN, MIXTRAL = ExpertNames(), ExpertNames("block_sparse_moe", "w1", "w3", "w2")


def expert_names(stored: Iterable[str]) -> ExpertNames:
    """Return what the tensors of a checkpoint call the parts of experts."""
    return MIXTRAL if any(f".{MIXTRAL.room}." in name for name in stored) else PLAIN


def model_stacks(config: ModelConfig) -> Stacks:
    """Return the weights outside the layers; a tied model has no ``head`` of its own."""
    vocabulary = (config.vocab_size, config.hidden_size)
    stacks: Stacks = {
        "embedding": (Part(EMBEDDING, vocabulary),),
        "final_norm": (Part(FINAL_NORM, (config.hidden_size,)),),
    }
    return stacks if config.tie_embeddings else stacks | {"head": (Part(HEAD, vocabulary),)}


def layer_stacks(config: ModelConfig, layer: int, names: ExpertNames = PLAIN) -> Stacks:
    """Return the weights of a layer."""
    place, hidden = f"model.layers.{layer}", config.hidden_size
    attention = _latent_attention if config.latent else _attention
    if config.has_experts(layer):
        feed_forward = _experts(config, f"{place}.{names.room}", names)
    else:
        feed_forward = _network(
            f"{place}.mlp", hidden, config.ffn_size, kinds=("weight", "bias")[: 1 + config.ffn_bias]
        )
    return {
        "attention_norm": _stack(place, {"input_layernorm": hidden}),
        **attention(config, layer, f"{place}.self_attn"),
        "ffn_norm": _stack(place, {"post_attention_layernorm": hidden}),
        **feed_forward,
    }


def all_parts(config: ModelConfig, names: ExpertNames = PLAIN) -> Iterator[Part]:
    """Yield every tensor that a checkpoint of the model must have."""
    layers = (layer_stacks(config, layer, names) for layer in config.distinct_layers)
    for stacks in (model_stacks(config), *layers):
        for stack in stacks.values():
            yield from stack


def parameters(config: ModelConfig) -> int:
    """Return the number of weights; a tied embedding counts once."""
    return sum(prod(part.shape) for part in all_parts(config))


def _stack(
    place: str, rows: Mapping[str, int], inputs: int | None = None, kind: str = "weight"
) -> Stack:
    """Return tensors with the given ``rows``; vectors without ``inputs``."""
    tail = () if inputs is None else (inputs,)
    return tuple(Part(f"{place}.{name}.{kind}", (size, *tail)) for name, size in rows.items())


def _attention(config: ModelConfig, layer: int, place: str) -> Stacks:
    """Return the heads of a layer; one that shares the keys of another has queries alone.

    Rows of ``qkv`` are those of all query heads, then key heads, then value heads.
    """
    hidden, width = config.hidden_size, config.head_dim
    queries, shared = config.heads * width, config.kv_heads * width
    stores = config.stores(layer)
    rows = {"q_proj": queries} | ({"k_proj": shared, "v_proj": shared} if stores else {})
    stacks = {
        "qkv": _stack(place, rows, hidden),
        "attention_out": _stack(place, {"o_proj": hidden}, queries),
    }
    if config.qkv_bias:
        stacks["qkv_bias"] = _stack(place, rows, kind="bias")
    if config.attention_out_bias:
        stacks["attention_out_bias"] = _stack(place, {"o_proj": hidden}, kind="bias")
    if config.qk_norm:
        stacks["query_norm"] = _stack(place, {"q_norm": width})
    if config.qk_norm and stores:
        stacks["key_norm"] = _stack(place, {"k_norm": width})
    return stacks


def _latent_attention(config: ModelConfig, layer: int, place: str) -> Stacks:
    """Return latent attention; rows that turn are the last of each head and of ``latent``."""
    del layer
    latent = config.latent
    assert latent is not None
    hidden, stored = config.hidden_size, latent.rank + latent.rope_dim
    queries, values = config.heads * config.head_dim, config.heads * latent.value_dim
    up = config.heads * (config.head_dim - latent.rope_dim) + values
    rank, query = latent.query_rank, "q_b_proj" if latent.query_rank else "q_proj"

    def rotated(name: str, rows: int, inputs: int, group_rows: int) -> Stack:
        turn = Rotated(group_rows, latent.rope_dim)
        return (Part(f"{place}.{name}.weight", (rows, inputs), turn),)

    stacks = {
        "query": rotated(query, queries, rank or hidden, config.head_dim),
        "latent": rotated("kv_a_proj_with_mqa", stored, hidden, stored),
        "latent_norm": _stack(place, {"kv_a_layernorm": latent.rank}),
        "latent_up": _stack(place, {"kv_b_proj": up}, latent.rank),
        "attention_out": _stack(place, {"o_proj": hidden}, values),
    }
    if rank is None:
        return stacks
    return stacks | {
        "query_down": _stack(place, {"q_a_proj": rank}, hidden),
        "query_norm": _stack(place, {"q_a_layernorm": rank}),
    }


def _experts(config: ModelConfig, place: str, names: ExpertNames) -> Stacks:
    """Return a router, its experts and the network beside them that every token uses."""
    experts, hidden = config.experts, config.hidden_size
    assert experts is not None
    stacks = {"router": _stack(place, {"gate": experts.experts}, hidden)}
    for index in range(experts.experts):
        name = f"experts.{index}"
        stacks |= _network(f"{place}.{name}", hidden, experts.ffn_size, names, f"{name}.")
    if experts.choice_bias:
        bias = _stack(place, {"gate": experts.experts}, kind="e_score_correction_bias")
        stacks[CHOICE_BIAS] = bias
    if experts.shared_size:
        shared = f"{place}.shared_experts"
        stacks |= _network(shared, hidden, experts.shared_size, prefix="shared.")
    return stacks


def _network(
    place: str,
    hidden: int,
    width: int,
    names: ExpertNames = PLAIN,
    prefix: str = "",
    kinds: Iterable[str] = ("weight",),
) -> Stacks:
    """Return a gated network: rows of ``gate_up`` are those of the gate, then of the up part."""
    stacks = {}
    for kind in kinds:
        ending = "" if kind == "weight" else f"_{kind}"
        inputs = (hidden, width) if kind == "weight" else (None, None)
        rows = {names.gate: width, names.up: width}
        stacks[f"{prefix}gate_up{ending}"] = _stack(place, rows, inputs[0], kind)
        stacks[f"{prefix}down{ending}"] = _stack(place, {names.down: hidden}, inputs[1], kind)
    return stacks
