"""The weights of a decoder as data: the name and the shape of each, and the tensors of a checkpoint
that make it. Free of torch.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from servetwin.engine.models.model_config import ModelConfig

Order = tuple[int, ...]
"""Where the rows of each group (a head) stand in the checkpoint.

There the rows of a pair that turns may be neighbours, and some may not turn; in the engine pairs
are half of what is rotated apart.
"""


class Part(NamedTuple):
    """A tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]
    order: Order | None = None
    """Of the rows of each group, where the engine has another."""


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
        kinds = ("weight", "bias")[: 1 + config.ffn_bias]
        feed_forward = _network(f"{place}.mlp", hidden, config.ffn_size, kinds=kinds)
    if "gate_up" in config.fused:
        feed_forward["gate_up"] = _stack(
            f"{place}.mlp", {"gate_up_proj": 2 * config.ffn_size}, hidden
        )
    norms = config.norms
    return {
        **_norm(place, "attention_norm", norms.before_attention, hidden),
        **attention(config, layer, f"{place}.self_attn"),
        **_norm(place, "attention_after_norm", norms.after_attention, hidden),
        **_norm(place, "ffn_norm", norms.before_ffn, hidden),
        **feed_forward,
        **_norm(place, "ffn_after_norm", norms.after_ffn, hidden),
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
    place: str,
    rows: Mapping[str, int],
    inputs: int | None = None,
    kind: str = "weight",
    orders: Mapping[str, Order] = MappingProxyType({}),
) -> Stack:
    """Return tensors with the given ``rows``; vectors without ``inputs``."""
    tail = () if inputs is None else (inputs,)
    return tuple(
        Part(f"{place}.{name}.{kind}", (size, *tail), orders.get(name))
        for name, size in rows.items()
    )


def _norm(place: str, name: str, stored: str | None, size: int) -> Stacks:
    return {} if stored is None else {name: _stack(place, {stored: size})}


def _head_order(config: ModelConfig) -> Order | None:
    """Return where the elements of a head stand; None where the engine has them as they are."""
    width, turning = config.head_dim, config.rotary_dim
    if turning == width and not config.neighbour_pairs:
        return None
    turned, still = range(turning), range(turning, width)
    middle = turning // 2
    firsts, seconds = (
        (turned[::2], turned[1::2])
        if config.neighbour_pairs
        else (turned[:middle], turned[middle:])
    )
    return (*firsts, *still[: len(still) // 2], *seconds, *still[len(still) // 2 :])


def _attention(config: ModelConfig, layer: int, place: str) -> Stacks:
    """Return the heads of a layer; one that shares the keys of another has queries alone.

    Rows of ``qkv`` are those of all query heads, then key heads, then value heads.
    """
    hidden, width = config.hidden_size, config.head_dim
    queries, shared = config.heads * width, config.kv_heads * width
    stores = config.stores(layer)
    rows = {"q_proj": queries} | ({"k_proj": shared, "v_proj": shared} if stores else {})
    if "qkv" in config.fused:
        rows = {"qkv_proj": sum(rows.values())}
    order = _head_order(config)
    orders = dict.fromkeys(("q_proj", "k_proj", "q_norm", "k_norm"), order) if order else {}
    stacks = {
        "qkv": _stack(place, rows, hidden, orders=orders),
        "attention_out": _stack(place, {"o_proj": hidden}, queries),
    }
    if config.qkv_bias:
        stacks["qkv_bias"] = _stack(place, rows, kind="bias", orders=orders)
    if config.attention_out_bias:
        stacks["attention_out_bias"] = _stack(place, {"o_proj": hidden}, kind="bias")
    normed = (queries, shared) if config.whole_qk_norm else (width, width)
    if config.qk_norm:
        stacks["query_norm"] = _stack(place, {"q_norm": normed[0]}, orders=orders)
    if config.qk_norm and stores:
        stacks["key_norm"] = _stack(place, {"k_norm": normed[1]}, orders=orders)
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
        still = group_rows - latent.rope_dim
        order = (*range(still), *range(still, group_rows, 2), *range(still + 1, group_rows, 2))
        return (Part(f"{place}.{name}.weight", (rows, inputs), order),)

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
        shared = f"{place}.shared_expert{'' if experts.shared_gate else 's'}"
        stacks |= _network(shared, hidden, experts.shared_size, prefix="shared.")
    if experts.shared_gate:
        stacks["shared_gate"] = _stack(place, {"shared_expert_gate": 1}, hidden)
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
