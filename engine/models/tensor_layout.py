"""The weights of a decoder as data: the name and the shape of each, and the tensors of a checkpoint
that make it. Free of torch.

``Order``: where the rows of each group (a head) stand in the checkpoint. There the rows of a pair
that turns may be neighbours, and some may not turn; in the engine pairs are half of what is rotated
apart. ``Stack``: parts whose rows follow each other in one weight of the engine. ``Stacks``: stacks
by the name of the weight, in the order in which random ones are drawn. ``CHOICE_BIAS``: the weight
of a router that is in float32 whatever the number format of the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from servetwin.engine.models.model_config import ExpertConfig, ModelConfig

Order = tuple[int, ...]


class Part(NamedTuple):
    """A tensor of a checkpoint, or one of those that are stacked in it.

    ``order``: of the rows of each group, where the engine has another. ``transposed``: whether it
    is [input, output] in the checkpoint. ``stacked``: (which, of how many) tensors of one.
    """

    name: str
    shape: tuple[int, ...]
    order: Order | None = None
    transposed: bool = False
    stacked: tuple[int, int] | None = None

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the tensor in the checkpoint."""
        shape = self.shape[::-1] if self.transposed else self.shape
        return shape if self.stacked is None else (self.stacked[1], *shape)


Stack = tuple[Part, ...]
Stacks = dict[str, Stack]

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
CHOICE_BIAS = "choice_bias"


def model_stacks(config: ModelConfig) -> Stacks:
    """Return the weights outside the layers; a tied model has no ``head`` of its own."""
    vocabulary = (config.vocab_size, config.hidden_size)
    stacks: Stacks = {
        "embedding": (Part(EMBEDDING, vocabulary),),
        **_norm("model", "final_norm", "norm", config),
    }
    if config.more_positions is not None:
        positions = config.max_model_len + config.more_positions
        stacks["positions"] = _stack("model", {"embed_positions": positions}, config.hidden_size)
    if not config.tie_embeddings:
        stacks["head"] = (Part(HEAD, vocabulary),)
    return _as_stored(config, stacks)


def head_name(config: ModelConfig) -> str:
    """Return what a checkpoint calls the output head."""
    return _renamed(HEAD, config.names)


def _as_stored(config: ModelConfig, stacks: Stacks, transposed: bool = False) -> Stacks:
    """Return the stacks with what the checkpoint calls their tensors, matrices turned over."""
    if not config.names:
        return stacks

    def stored(part: Part) -> Part:
        turned = part.transposed or (transposed and len(part.shape) > 1)
        return part._replace(name=_renamed(part.name, config.names), transposed=turned)

    return {name: tuple(map(stored, stack)) for name, stack in stacks.items()}


def _renamed(name: str, names: Iterable[tuple[str, str]]) -> str:
    for usual, own in names:
        name = name.replace(usual, own)
    return name


def layer_stacks(config: ModelConfig, layer: int) -> Stacks:
    """Return the weights of a layer."""
    place = f"model.layers.{config.blocks[layer] if config.blocks else layer}"
    if config.keeps_state(layer):
        mixer = _state_space(config, f"{place}.mamba")
    else:
        attention = _latent_attention if config.latent else _attention
        mixer = attention(config, layer, f"{place}.self_attn")
    norms = config.norms
    stacks = {
        **_norm(place, "attention_norm", norms.before_attention, config),
        **mixer,
        **_norm(place, "attention_after_norm", norms.after_attention, config),
    }
    if config.has_ffn(layer):
        behind = f"model.layers.{config.blocks[layer] + 1}" if config.blocks else place
        stacks |= {
            **_norm(behind, "ffn_norm", norms.before_ffn, config),
            **_feed_forward(config, layer, f"{behind}.mlp"),
            **_norm(behind, "ffn_after_norm", norms.after_ffn, config),
        }
    return _as_stored(config, stacks, config.transposed)


def all_parts(config: ModelConfig) -> Iterator[Part]:
    """Yield every tensor that a checkpoint of the model must have, stacked ones apart."""
    layers = (layer_stacks(config, layer) for layer in config.distinct_layers)
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


def _norm(place: str, name: str, stored: str | None, config: ModelConfig) -> Stacks:
    if stored is None:
        return {}
    rows = {stored: config.hidden_size}
    bias = {f"{name}_bias": _stack(place, rows, kind="bias")} if config.norms.biased else {}
    return {name: _stack(place, rows)} | bias


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


def _by_group(config: ModelConfig) -> Order:
    """Return where rows stand if those of a key head, and its value head, follow its queries."""
    group, width = config.heads // config.kv_heads, config.head_dim
    rows = np.arange((config.heads + 2 * config.kv_heads) * width)
    heads = rows.reshape(config.kv_heads, group + 2, width)
    turned = heads[..., list(_head_order(config) or range(width))]
    parts = turned[:, :group], turned[:, group], heads[:, group + 1]
    return tuple(np.concatenate([part.ravel() for part in parts]).tolist())


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
    if "by group" in config.fused:
        orders["qkv_proj"] = _by_group(config)
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
    if config.learned_sinks:
        stacks["sinks"] = (Part(f"{place}.sinks", (config.heads,)),)
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


def _state_space(config: ModelConfig, place: str) -> Stacks:
    """Return Mamba 2: rows of ``state_in`` are those of the gate, the convolution and the steps."""
    space, hidden = config.state_space, config.hidden_size
    assert space is not None
    sizes = space.sizes
    rows = sizes.inner + sizes.convolved + sizes.heads
    numbers = {"step_bias": "dt_bias", "decay": "A_log", "skip": "D"}
    stacks = {
        "state_in": _stack(place, {"in_proj": rows}, hidden),
        "convolution": (Part(f"{place}.conv1d.weight", (sizes.convolved, 1, sizes.kernel)),),
        **{name: (Part(f"{place}.{own}", (sizes.heads,)),) for name, own in numbers.items()},
        "gated_norm": _stack(place, {"norm": sizes.inner}),
        "state_out": _stack(place, {"out_proj": hidden}, sizes.inner),
    }
    if space.convolution_bias:
        stacks["convolution_bias"] = _stack(place, {"conv1d": sizes.convolved}, kind="bias")
    if space.product_bias:
        stacks["state_in_bias"] = _stack(place, {"in_proj": rows}, kind="bias")
        stacks["state_out_bias"] = _stack(place, {"out_proj": hidden}, kind="bias")
    return stacks


def _feed_forward(config: ModelConfig, layer: int, place: str) -> Stacks:
    if config.has_experts(layer):
        return _experts(config, place)
    return _network(config, place, config.ffn_size, biased=config.ffn_bias)


def _experts(config: ModelConfig, place: str) -> Stacks:
    """Return a router, its experts and the network beside them that every token uses."""
    experts, hidden = config.experts, config.hidden_size
    assert experts is not None
    stacks = {"router": _stack(place, {"gate": experts.experts}, hidden)}
    if experts.biased:
        stacks["router_bias"] = _stack(place, {"gate": experts.experts}, kind="bias")
    for index in range(experts.experts):
        name = f"experts.{index}"
        stacks |= (
            _stacked_network(config, experts, index, place)
            if experts.stacked
            else _network(config, f"{place}.{name}", experts.ffn_size, f"{name}.")
        )
    if experts.choice_bias:
        bias = _stack(place, {"gate": experts.experts}, kind="e_score_correction_bias")
        stacks[CHOICE_BIAS] = bias
    if experts.shared_size:
        shared = f"{place}.shared_expert{'' if experts.shared_gate else 's'}"
        stacks |= _network(config, shared, experts.shared_size, "shared.")
    if experts.shared_gate:
        stacks["shared_gate"] = _stack(place, {"shared_expert_gate": 1}, hidden)
    return stacks


def _network(
    config: ModelConfig, place: str, width: int, prefix: str = "", biased: bool = False
) -> Stacks:
    """Return a network: rows of ``gate_up`` are those of the gate, then of the up part."""
    inside, stacks, hidden = "gate_up" if config.gated else "up", Stacks(), config.hidden_size
    rows = dict.fromkeys(("gate_proj", "up_proj")[1 - config.gated :], width)
    if "gate_up" in config.fused:
        rows = {"gate_up_proj": 2 * width}
    for kind, ending in (("weight", ""), ("bias", "_bias"))[: 1 + biased]:
        inputs = (None, None) if ending else (hidden, width)
        stacks[f"{prefix}{inside}{ending}"] = _stack(place, rows, inputs[0], kind)
        stacks[f"{prefix}down{ending}"] = _stack(place, {"down_proj": hidden}, inputs[1], kind)
    return stacks


def _stacked_network(config: ModelConfig, experts: ExpertConfig, index: int, place: str) -> Stacks:
    """Return one of the networks that a checkpoint has in one tensor."""
    hidden, width, which = config.hidden_size, experts.ffn_size, (index, experts.experts)
    order = (*range(0, 2 * width, 2), *range(1, 2 * width, 2)) if experts.biased else None
    stacks = Stacks()
    for name, shape in (("gate_up", (2 * width, hidden)), ("down", (hidden, width))):
        own, rows = f"experts.{index}.{name}", order if name == "gate_up" else None
        stored = f"{place}.experts.{name}_proj"
        stacks[own] = (Part(stored, shape, rows, experts.turned, which),)
        if experts.biased:
            stacks[f"{own}_bias"] = (Part(f"{stored}_bias", shape[:1], rows, stacked=which),)
    return stacks
