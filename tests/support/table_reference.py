"""Attention of decodes over block tables in plain torch: what the kernels are held against.

Like a captured graph it knows no context on the host: every shape is that of the tables.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from servetwin.engine.attention.table_attention import (
    NO_WINDOW,
    BlockTables,
    StoredHeads,
)


def attend_by_table(
    queries: Tensor, stored: StoredHeads, tables: BlockTables, window: int = NO_WINDOW
) -> Tensor:
    """Gather whole tables in float32 and call torch; a row without a context gives zeros."""
    position = torch.arange(tables.starts.shape[1] * tables.span_tokens, device=queries.device)
    contexts = tables.contexts[:, None]
    seen = position < contexts
    seen &= position >= contexts - window
    slots = tables.starts[:, position // tables.span_tokens] + position % tables.span_tokens
    slots = torch.where(seen, slots, 0)
    keys = _gather(stored.keys, stored.key_scales, slots, seen)
    values = _gather(stored.values, stored.value_scales, slots, seen)
    mask = seen[:, None, None]
    output = F.scaled_dot_product_attention(queries.float(), keys, values, attn_mask=mask)
    return torch.where(contexts[:, None, None] > 0, output, 0.0).to(queries.dtype)


def _gather(stored: Tensor, scales: Tensor | None, slots: Tensor, seen: Tensor) -> Tensor:
    """Return [rows, kv heads, positions, width], with zeros where nothing is seen."""
    gathered = stored[slots].float()
    if scales is not None:
        gathered = gathered * scales[slots, :, None]
    return gathered.masked_fill(~seen[:, :, None, None], 0.0).transpose(1, 2)
