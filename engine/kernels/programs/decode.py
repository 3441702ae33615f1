"""Attention of decodes over block tables, as Triton programs: flash decoding in two stages.

Stage one splits what a row may see into a fixed number of shares, so that a captured graph serves
every context; a share that is empty ends at once. Stage two merges the shares of a head by the
logarithms of their sums.

The positions of a row that are visible are the last ``window`` of its context; the loop counts
these only.
"""

import triton
import triton.language as tl


@triton.jit
def attend_share(
    queries, keys, values, key_scales, value_scales, tables, contexts, outputs, logs,
    table_width, context_width, query_row, query_head, slot_keys, slot_values, head_keys,
    head_values, slot_scales, span_tokens, window, scale,
    SCALED: tl.constexpr, GROUP: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
    TILE_GROUP: tl.constexpr, TILE_KEY: tl.constexpr, TILE_VALUE: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Attend with the query group of one key head to one share of one row's context."""
    row, head, share, shares = (
        tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    )  # fmt: skip
    context = tl.load(contexts + row * context_width).to(tl.int32)
    hidden = tl.maximum(context - window, 0)
    visible = context - hidden
    size = tl.cdiv(tl.cdiv(visible, shares), TILE) * TILE
    begin = share * size
    end = tl.minimum(begin + size, visible)
    member = tl.arange(0, TILE_GROUP)
    heads = tl.num_programs(1)
    place = ((row * heads + head) * shares + share) * GROUP + member
    if begin >= end:
        tl.store(logs + place, tl.full([TILE_GROUP], -float("inf"), tl.float32), member < GROUP)
        return
    key_at, value_at = tl.arange(0, TILE_KEY), tl.arange(0, TILE_VALUE)
    query = tl.load(
        queries + row * query_row + (head * GROUP + member)[:, None] * query_head + key_at[None],
        (member < GROUP)[:, None] & (key_at < KEY)[None],
        0.0,
    )
    peak, total, output = attend_tiles(
        query, keys + head * head_keys, values + head * head_values, key_scales, value_scales,
        tables + row * table_width, head, begin, end, hidden, slot_keys, slot_values, slot_scales,
        span_tokens, scale, SCALED, KEY, VALUE, TILE_GROUP, TILE_KEY, TILE_VALUE, TILE,
    )  # fmt: skip
    tl.store(logs + place, peak + tl.log2(total), member < GROUP)
    tl.store(
        outputs + place[:, None] * VALUE + value_at[None],
        output / total[:, None],
        (member < GROUP)[:, None] & (value_at < VALUE)[None],
    )


@triton.jit
def attend_tiles(
    query, keys, values, key_scales, value_scales, table, head, begin, end, hidden,
    slot_keys, slot_values, slot_scales, span_tokens, scale,
    SCALED: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
    TILE_GROUP: tl.constexpr, TILE_KEY: tl.constexpr, TILE_VALUE: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Return the largest score, the sum of weights and the weighted values of visible positions."""
    key_at, value_at = tl.arange(0, TILE_KEY), tl.arange(0, TILE_VALUE)
    peak = tl.full([TILE_GROUP], -float("inf"), tl.float32)
    total = tl.zeros([TILE_GROUP], tl.float32)
    output = tl.zeros([TILE_GROUP, TILE_VALUE], tl.float32)
    for first in range(begin, end, TILE):
        count = first + tl.arange(0, TILE)
        there = count < end
        position = count + hidden
        start = tl.load(table + position // span_tokens, there, 0)
        slot = start.to(tl.int64) + position % span_tokens
        key = tl.load(
            keys + slot[None] * slot_keys + key_at[:, None],
            there[None] & (key_at < KEY)[:, None],
            0.0,
        )
        scores = tl.dot(query, key.to(query.dtype), input_precision="ieee") * scale
        if SCALED:
            scores *= tl.load(key_scales + slot * slot_scales + head, there, 0.0)[None]
        scores = tl.where(there[None], scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(weights, 1)
        if SCALED:
            weights *= tl.load(value_scales + slot * slot_scales + head, there, 0.0)[None]
        value = tl.load(
            values + slot[:, None] * slot_values + value_at[None],
            there[:, None] & (value_at < VALUE)[None],
            0.0,
        )
        output = output * shrink[:, None]
        output += tl.dot(weights.to(query.dtype), value.to(query.dtype), input_precision="ieee")
        peak = higher
    return peak, total, output


@triton.jit
def merge_shares(
    outputs, logs, merged, shares,
    GROUP: tl.constexpr, VALUE: tl.constexpr, TILE_VALUE: tl.constexpr, TILE_SHARES: tl.constexpr,
):  # fmt: skip
    """Merge the shares of one query head; a row without a context gives zeros."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    query_heads = tl.num_programs(1)
    share, value_at = tl.arange(0, TILE_SHARES), tl.arange(0, TILE_VALUE)
    first = (row * (query_heads // GROUP) + head // GROUP) * shares * GROUP + head % GROUP
    place = first + share * GROUP
    log = tl.load(logs + place, share < shares, -float("inf"))
    filled = log > -float("inf")
    peak = tl.max(log, 0)
    weights = tl.exp2(log - tl.where(peak > -float("inf"), peak, 0.0))
    parts = tl.load(
        outputs + place[:, None] * VALUE + value_at[None],
        filled[:, None] & (value_at < VALUE)[None],
        0.0,
    )
    total = tl.sum(weights, 0)
    output = tl.sum(weights[:, None] * parts, 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(merged + (row * query_heads + head) * VALUE + value_at, output, value_at < VALUE)
