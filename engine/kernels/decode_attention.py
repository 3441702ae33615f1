"""Attention of decodes over block tables: one row each, over what is stored of its sequence."""

import math

import torch
from torch import Tensor

from servetwin.engine.attention.table_attention import NO_WINDOW, BlockTables, StoredHeads
from servetwin.engine.kernels.programs.decode import attend_share, merge_shares

# Keys of one tile: what fits into the shared memory of a multiprocessor, several times over.
_TILE_ELEMENTS = 64 * 128
_MOST_SHARES, _FEWEST_SHARES = 32, 4
# How many programs fill a large card: four for each of its multiprocessors.
_PROGRAMS = 4 * 132


def shares_for(programs: int) -> int:
    """Return into how many shares contexts are split, by the pairs of row and key head."""
    wanted = -(-_PROGRAMS // max(programs, 1))
    return min(max(1 << (wanted - 1).bit_length(), _FEWEST_SHARES), _MOST_SHARES)


def attend_decodes(
    queries: Tensor,
    stored: StoredHeads,
    tables: BlockTables,
    window: int = NO_WINDOW,
    *,
    shares: int | None = None,
) -> Tensor:
    """Return [rows, kv heads, group, value width] for ``queries`` [rows, kv heads, group, width].

    A row sees the last ``window`` positions of its context.
    """
    rows, heads, group, width = queries.shape
    value_width = stored.values.shape[2]
    shares = shares or shares_for(rows * heads)
    outputs = queries.new_empty((rows, heads, shares, group, value_width), dtype=torch.float32)
    logs = queries.new_empty((rows, heads, shares, group), dtype=torch.float32)
    merged = queries.new_empty((rows, heads, group, value_width))
    attend_share[rows, heads, shares](
        queries, stored.keys, stored.values, stored.key_scales, stored.value_scales,
        tables.starts, tables.contexts, outputs, logs,
        tables.starts.stride(0), tables.contexts.stride(0),
        queries.stride(0), queries.stride(2),
        stored.keys.stride(0), stored.values.stride(0),
        stored.keys.stride(1), stored.values.stride(1),
        stored.key_scales.stride(0) if stored.key_scales is not None else 0,
        tables.span_tokens, window, width**-0.5 * math.log2(math.e),
        SCALED=stored.key_scales is not None, **tiles(group, width, value_width),
    )  # fmt: skip
    merge_shares[rows, heads * group](
        outputs, logs, merged, shares,
        GROUP=group, VALUE=value_width, TILE_VALUE=power_of_two(value_width),
        TILE_SHARES=power_of_two(shares),
    )  # fmt: skip
    return merged


def tiles(group: int, width: int, value_width: int) -> dict[str, int]:
    """Return the sizes that the first stage is compiled for: those of the heads, and its tiles'."""
    tile_key, tile_value = power_of_two(width), power_of_two(value_width)
    return {
        "GROUP": group, "KEY": width, "VALUE": value_width,
        "TILE_GROUP": power_of_two(group), "TILE_KEY": tile_key, "TILE_VALUE": tile_value,
        "TILE": max(16, min(64, _TILE_ELEMENTS // max(tile_key, tile_value))),
    }  # fmt: skip


def power_of_two(width: int) -> int:
    """Return the side of a tile that holds ``width``: a power of two, at least 16."""
    return max(16, 1 << (width - 1).bit_length())
