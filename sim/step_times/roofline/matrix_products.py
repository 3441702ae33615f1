"""The work of a model: its matrix products, each alone, and the work of one token.

A product has its FLOPs, and the elements it reads and writes. A token (``token_work``) moves every
weight and every cached number once, without activations and head. "MOPs" in the notes are these
elements; bytes are elements times the bytes of one.

Symbols as in ``docs/techniques/roofline.md``: n rows (tokens computed), l keys attended to,
d width, h query heads, k KV heads, e head size, f FFN width. Kaplan 2020 and Pope 2022 count
likewise.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np

from servetwin.sim.catalogue.layers import Attention, Dense, FeedForward, Mixer
from servetwin.sim.catalogue.model import LayerGroup, ModelShape
from servetwin.sim.step_times.roofline.operators import STATE_FLOPS, kv_sharing, visible

Kind = Literal["projections", "attention", "FFN"]
KINDS: tuple[Kind, ...] = ("projections", "attention", "FFN")
BF16_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Product:
    """``count`` equal products; ``flops`` and ``elements`` (operands and result) are of one."""

    name: str
    flops: float
    elements: float
    count: float = 1


def product(name: str, rows: float, inner: float, columns: float, count: float = 1) -> Product:
    """Return (rows x inner) times (inner x columns), operands and result through memory."""
    elements = rows * inner + inner * columns + rows * columns
    return Product(name, 2 * rows * inner * columns, elements, count)


def projections(mixer: Attention, width: int, rows: int) -> list[Product]:
    """Return query, key, value and output; layers that share keys (CLA) divide key and value."""
    queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    share = 1 / mixer.kv_sharing
    return [
        product("query", rows, width, queries),
        product("key", rows, width, keys, share),
        product("value", rows, width, keys, share),
        product("output", rows, queries, width),
    ]


def attention_products(
    mixer: Attention, rows: int, keys: int, scores_in_memory: bool
) -> list[Product]:
    """Return queries times keys and probabilities times values, both products of activations.

    A KV head serves h / k query heads. With FlashAttention (Dao 2022) the rows x keys scores stay
    on the chip: not ``scores_in_memory``.
    """
    group_rows = rows * mixer.heads / mixer.kv_heads
    pairs = [
        product("scores", group_rows, mixer.head_dim, keys, mixer.kv_heads),
        product("values", group_rows, keys, mixer.head_dim, mixer.kv_heads),
    ]
    if scores_in_memory:
        return pairs
    return [replace(p, elements=p.elements - group_rows * keys) for p in pairs]


def ffn_products(ffn: FeedForward, width: int, rows: int) -> list[Product]:
    """Return the matrices of the FFN; of experts the touched ones, each with its share of rows."""
    if isinstance(ffn, Dense):
        return _matrices("FFN", rows, width, ffn.width, ffn.matrices)
    touched = ffn.touched_experts(rows)
    each = rows * ffn.top_k / touched
    return [
        product("router", rows, width, ffn.experts),
        *_matrices("expert", each, width, ffn.width, ffn.matrices * touched),
        *_matrices("shared expert", rows, width, ffn.shared_width, ffn.matrices),
    ]


def model_products(
    model: ModelShape, rows: int, keys: int, scores_in_memory: bool = True
) -> dict[Kind, list[Product]]:
    """Return all products of all layers by kind, without the head.

    Layers that mix by latents or states have no products of this form: only their FFN is there.
    """
    by_kind: dict[Kind, list[Product]] = {kind: [] for kind in KINDS}
    for group in model.layers:
        here: dict[Kind, list[Product]] = {"FFN": ffn_products(group.ffn, model.width, rows)}
        if isinstance(group.mixer, Attention):
            here["projections"] = projections(group.mixer, model.width, rows)
            here["attention"] = attention_products(group.mixer, rows, keys, scores_in_memory)
        for kind, products in here.items():
            by_kind[kind] += [replace(p, count=p.count * group.count) for p in products]
    return {kind: products for kind, products in by_kind.items() if products}


def intensity_flops_per_element(products: Iterable[Product]) -> float:
    """Return the FLOPs over the elements of several products together."""
    listed = list(products)
    flops = sum(p.count * p.flops for p in listed)
    return flops / sum(p.count * p.elements for p in listed)


def intensity_table(
    model: ModelShape, rows: Iterable[int], keys: Iterable[int], scores_in_memory: bool = True
) -> dict[tuple[Kind, int, int], float]:
    """Return FLOP/element by kind of product, n of ``rows`` and l of ``keys``, for all n <= l.

    Attention counts in two ways: its scores travel through memory (``scores_in_memory``; tends to
    twice the head size), or they stay on the chip (FlashAttention, Dao 2022; no ceiling).
    """
    cells = [(n, length) for length in keys for n in rows if n <= length]
    return {
        (kind, n, length): intensity_flops_per_element(products)
        for n, length in cells
        for kind, products in model_products(model, n, length, scores_in_memory).items()
    }


def matmul_rows_at(
    flops_per_byte: float, inner: float, columns: float, element_bytes: float = BF16_BYTES
) -> float:
    """Return the rows at which a product reaches an intensity, such as a ridge.

    Infinite where no number of rows does. Williams 2009 (roofline).
    """
    per_element = flops_per_byte * element_bytes
    weights = inner * columns
    room = 2 * weights - per_element * (inner + columns)
    return per_element * weights / room if room > 0 else inf


def _matrices(name: str, rows: float, width: int, inner: int, count: float) -> list[Product]:
    return [product(name, rows, width, inner, count)] if inner and count else []


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs and elements moved."""

    flops: float = 0.0
    elements: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.elements + other.elements)

    def times(self, count: int) -> "Work":
        """Return the work ``count`` times."""
        return Work(self.flops * count, self.elements * count)


def token_work(model: ModelShape, context_tokens: int) -> dict[Kind, Work]:
    """Return the work of the token at position ``context_tokens``, all layers together.

    Projections 8 d^2 L / 4 d^2 L, attention 4 d l L / 2 d l L, FFN 2 m d f L / m d f L for h = k.
    A recurrent state counts as attention.
    """
    total = dict.fromkeys(KINDS, Work())
    for group in model.layers:
        for kind, work in _layer_work(group, model.width, context_tokens).items():
            total[kind] += work.times(group.count)
    return total


def total_work(work: dict[Kind, Work]) -> Work:
    """Return the work of all kinds together."""
    return sum(work.values(), Work())


def with_ffn_matrices(model: ModelShape, matrices: int) -> ModelShape:
    """Return the model with ``matrices`` in each FFN or expert: 2 plain, 3 gated."""
    return model.with_ffns(lambda ffn: ffn.model_copy(update={"matrices": matrices}))


def _layer_work(group: LayerGroup, width: int, context_tokens: int) -> dict[Kind, Work]:
    mixer, ffn = group.mixer, group.ffn
    projected = mixer.params(width)
    return {
        "projections": Work(2 * projected, projected),
        "attention": _attention_work(mixer, context_tokens),
        "FFN": Work(2 * ffn.active_params(width), ffn.touched_params(width, 1)),
    }


def _attention_work(mixer: Mixer, context_tokens: int) -> Work:
    tokens = int(visible(mixer, np.array([context_tokens]))[0])
    state = mixer.state_passes * mixer.state_elements()
    flops = mixer.decode_flops_per_pair() * tokens + STATE_FLOPS * state
    return Work(flops, mixer.kv_elements() * kv_sharing(mixer) * tokens + state)
