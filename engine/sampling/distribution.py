"""From adjusted logits to the distribution that a token is drawn from.

In vLLM's order: temperature, ``min_p``, ``top_k``, ``top_p``. Each filter is one threshold per row
on the scaled logits, so tokens of equal logits stay or go together, and the work does not depend on
how many different parameters there are.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.models.device import floats_to_device, to_device
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.sampling.token_state import SampledRow


def adjust(logits: Tensor, rows: Sequence[SampledRow]) -> None:
    """Change ``logits`` [rows, vocabulary] in place."""
    if any(row.params.allowed_token_ids for row in rows):
        _allow(logits, rows)
    if any(row.params.logit_bias for row in rows):
        _add_biases(logits, rows)
    early = [row.generated_tokens < row.params.min_tokens for row in rows]
    if any(early):
        index = _pairs(
            [_ends(row.params) if waits else () for row, waits in zip(rows, early, strict=True)],
            logits.device,
        )
        logits.index_put_(index, logits.new_full((), -math.inf))
    if any(row.seen for row in rows):
        _penalise(logits, rows)


def _ends(params: SamplingParams) -> tuple[int, ...]:
    """Return the tokens that would end the sequence."""
    return (*params.eos_ids, *params.stop_token_ids)


def _allow(logits: Tensor, rows: Sequence[SampledRow]) -> None:
    index = _pairs([row.params.allowed_token_ids for row in rows], logits.device)
    allowed = logits[index]
    limited = [place for place, row in enumerate(rows) if row.params.allowed_token_ids]
    logits.index_fill_(0, to_device(limited, logits.device), -math.inf)
    logits.index_put_(index, allowed)


def _add_biases(logits: Tensor, rows: Sequence[SampledRow]) -> None:
    index = _pairs([[token for token, _ in row.params.logit_bias] for row in rows], logits.device)
    biases = [bias for row in rows for _, bias in row.params.logit_bias]
    logits.index_put_(index, floats_to_device(biases, logits.device), accumulate=True)


def _penalise(logits: Tensor, rows: Sequence[SampledRow]) -> None:
    """Make tokens that were seen less likely: repetition (of prompt and output) divides, then
    frequency and presence (of the output) subtract. Only these tokens are touched.
    """
    device = logits.device
    chosen = [
        (row.params, place, *row.seen.marks(row.drafted))
        for place, row in enumerate(rows)
        if row.seen
    ]
    sizes = [len(ids) for _, _, ids, _ in chosen]

    def each(value: Callable[[SamplingParams], float]) -> Tensor:
        values = np.array([value(params) for params, *_ in chosen], dtype=np.float32)
        return floats_to_device(np.repeat(values, sizes), device)

    places = np.repeat([place for _, place, _, _ in chosen], sizes)
    columns = np.concatenate([ids for _, _, ids, _ in chosen])
    marks = to_device(np.concatenate([row_marks for _, _, _, row_marks in chosen]), device)
    index = to_device(places, device), to_device(columns, device)
    penalised, generated = logits[index], marks >> 1
    repetition = each(lambda params: params.repetition_penalty)
    penalised = torch.where(penalised > 0, penalised / repetition, penalised * repetition)
    penalised -= each(lambda params: params.frequency_penalty) * generated
    penalised -= each(lambda params: params.presence_penalty) * (generated > 0)
    logits.index_put_(index, penalised)


def _pairs(ids: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the rows and the columns of the token ids that are given for each row."""
    rows = [row for row, row_ids in enumerate(ids) for _ in row_ids]
    columns = [token for row_ids in ids for token in row_ids]
    return to_device(rows, device), to_device(columns, device)


def argmax(rows: Tensor) -> Tensor:
    """Return the index of the largest number of each row; of equal ones the first.

    On the CPU by NumPy, which takes a tenth of torch's time for 8 rows of 32,000 numbers.
    """
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        return torch.from_numpy(rows.numpy().argmax(-1))
    return rows.argmax(-1)


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
    limited = scaled if len(index) == len(scaled) else scaled.index_select(0, index)
    _cut(limited, _thresholds(limited, params))
    if limited is not scaled:
        scaled.index_copy_(0, index, limited)


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
