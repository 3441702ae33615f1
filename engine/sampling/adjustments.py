"""What changes logits before a token is chosen, by greedy choice as well: bans, biases, penalties.

In vLLM's order: allowed tokens, biases, bans until ``min_tokens``, penalties.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from servetwin.engine.models.device import floats_to_device, to_device
from servetwin.engine.sampling.sampled_row import SampledRow
from servetwin.engine.sampling.sampling_params import SamplingParams


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
    kept = logits[index]
    limited = [place for place, row in enumerate(rows) if row.params.allowed_token_ids]
    logits.index_fill_(0, to_device(limited, logits.device), -math.inf)
    logits.index_put_(index, kept)


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
    marks = to_device(np.concatenate([own for _, _, _, own in chosen]), device)
    index = to_device(places, device), to_device(columns, device)
    own, generated = logits[index], marks >> 1
    repetition = each(lambda params: params.repetition_penalty)
    own = torch.where(own > 0, own / repetition, own * repetition)
    own -= each(lambda params: params.frequency_penalty) * generated
    own -= each(lambda params: params.presence_penalty) * (generated > 0)
    logits.index_put_(index, own)


def _pairs(ids: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the rows and the columns of the token ids that are given for each row."""
    rows = [row for row, own in enumerate(ids) for _ in own]
    columns = [token for own in ids for token in own]
    return to_device(rows, device), to_device(columns, device)
