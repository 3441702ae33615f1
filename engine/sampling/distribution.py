"""From adjusted logits to the distribution that a token is drawn from.

In vLLM's order: temperature, ``min_p``, ``top_k``, ``top_p``. Each filter is one threshold per row
on the scaled logits, so tokens of equal logits stay or go together, and the work does not depend on
how many different parameters there are.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.models.device import floats_to_device, to_device
from servetwin.engine.sampling.sampling_params import SamplingParams


def distribution(logits: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Return the probabilities [rows, vocabulary] that rows with a temperature draw from.

    The largest logit is subtracted before the division, so that no temperature overflows.
    """
    device = logits.device
    temperatures = floats_to_device([one.temperature for one in params], device)
    scaled = (logits - logits.amax(-1, keepdim=True)).div_(temperatures[:, None])
    if any(one.min_p for one in params):
        lowest = [math.log(one.min_p) if one.min_p else -math.inf for one in params]
        _cut(scaled, floats_to_device(lowest, device)[:, None])
    ranked = [place for place, one in enumerate(params) if one.top_k or one.top_p < 1]
    if ranked:
        _keep_top(scaled, [params[place] for place in ranked], to_device(ranked, device))
    return scaled.softmax(-1)


def _keep_top(scaled: Tensor, params: Sequence[SamplingParams], index: Tensor) -> None:
    """Apply ``top_k`` and ``top_p`` to the rows of ``index``, in place."""
    own = scaled if len(index) == len(scaled) else scaled.index_select(0, index)
    _cut(own, _thresholds(own, params))
    if own is not scaled:
        scaled.index_copy_(0, index, own)


def _thresholds(scaled: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Return the lowest scaled logit [rows, 1] that ``top_k`` and then ``top_p`` keep.

    What ``top_p`` drops are the least likely tokens whose running sum is at most 1 - top_p.
    """
    vocabulary, device = scaled.shape[1], scaled.device
    ascending = _ascending(scaled)
    dropped = [vocabulary - min(one.top_k or vocabulary, vocabulary) for one in params]
    lowest = ascending.gather(1, to_device(dropped, device)[:, None])
    if all(one.top_p == 1 for one in params):
        return lowest
    shares = [1 - one.top_p if one.top_p < 1 else -1.0 for one in params]
    _cut(ascending, lowest)
    mass = ascending.softmax(-1).cumsum(-1)
    below = (mass <= floats_to_device(shares, device)[:, None]).sum(-1, keepdim=True)
    return torch.maximum(lowest, ascending.gather(1, below.clamp_(max=vocabulary - 1)))


def _ascending(values: Tensor) -> Tensor:
    """Return each row in order; on the CPU by NumPy, which takes a thirtieth of torch's time."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(-1).values


def _cut(scaled: Tensor, lowest: Tensor) -> None:
    scaled.masked_fill_(scaled < lowest, -math.inf)
