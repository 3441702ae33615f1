"""Attention to sinks: the first tokens, which a query meets right before its window.

Positions are those within the cache (StreamingLLM, Xiao 2023, section 3.2): distances within the
window stay as they are. For the sinks alone, a query is turned back to where it stands in the
cache.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from servetwin.engine.kv.forgetting import KeptTokens
from servetwin.engine.models.device import to_device
from servetwin.engine.models.rotary import rotate

SinkTurn = tuple[Tensor, Tensor]
"""Cosines and sines [rows, 1, head dim] for ``rotate``: they turn queries back."""


def sink_turn(
    positions: NDArray[np.int64], kept: KeptTokens, frequencies: Tensor, dtype: torch.dtype
) -> SinkTurn:
    """Return what turns queries at ``positions`` back to their places in the cache.

    ``frequencies`` are the angles of the rotary positions.
    """
    shift = np.maximum(0, positions + 1 - kept.total)
    angles = torch.outer(to_device(shift, frequencies.device).float(), frequencies)
    cos, sin = angles.cos(), angles.sin()
    factors = torch.cat((cos, cos), dim=1), torch.cat((sin, -sin), dim=1)
    turned_cos, turned_sin = (factor.unsqueeze(1).to(dtype) for factor in factors)
    return turned_cos, turned_sin


def with_sink_columns(
    queries: Tensor, keys: Tensor, values: Tensor, sinks: int, turn: SinkTurn
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values whose product has the scores of turned queries at the sinks.

    Queries are [rows, kv heads, group, head dim], keys and values [keys, kv heads, head dim], of
    which the first ``sinks`` are of sinks. The scores at the sinks are computed here, each in two
    columns behind the query, and a sink's key has a one in these columns alone: so one kernel call
    serves all keys. The second column is what rounding took from the first. Values get columns of
    zeros, since fused kernels want one width.
    """
    heads, width = keys.shape[1:]
    turned = rotate(queries.flatten(1, 2), *turn).view_as(queries)
    scores = torch.einsum("qhgd,khd->qhgk", turned.float(), keys[:sinks].float())
    rounded = scores.to(queries.dtype)
    rest = (scores - rounded.float()).to(queries.dtype)
    wide = keys.new_zeros((len(keys), heads, width + 2 * sinks))
    wide[sinks:, :, :width] = keys[sinks:]
    which = torch.eye(sinks, dtype=keys.dtype, device=keys.device)
    wide[:sinks, :, width:] = which.repeat(1, 2).unsqueeze(1)
    return torch.cat((queries, rounded, rest), dim=-1), wide, F.pad(values, (0, 2 * sinks))
