"""Sampling: from logits to tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.device import to_device
from engine.sampling.sampling_params import SamplingParams


def random_generator(params: SamplingParams) -> torch.Generator | None:
    """Return the random generator of one sequence, on the CPU; None when greedy."""
    if params.temperature == 0:
        return None
    generator = torch.Generator()
    if params.seed is None:
        generator.seed()
    else:
        generator.manual_seed(params.seed)
    return generator


@dataclass(frozen=True, slots=True)
class SampledRow:
    """The sampling state of the sequence behind one row of logits."""

    params: SamplingParams
    generated_tokens: int
    generator: torch.Generator | None = None


def sample(logits: Tensor, rows: Sequence[SampledRow]) -> Tensor:
    """Return one token id per row of ``logits`` [rows, vocabulary]; ``logits`` may be overwritten.

    A sequence with a generator draws exactly one number per token, so its tokens do not depend on
    the batch that it is in.
    """
    early = [i for i, row in enumerate(rows) if row.generated_tokens < row.params.min_tokens]
    if early:
        _forbid(logits, [(i, token) for i in early for token in rows[i].params.eos_ids])
    tokens = logits.argmax(dim=-1)
    drawn = [i for i, row in enumerate(rows) if row.params.temperature > 0]
    if drawn:
        index = to_device(drawn, logits.device)
        picks = _draw(logits.index_select(0, index), [rows[i] for i in drawn])
        tokens.index_copy_(0, index, picks)
    return tokens


def _forbid(logits: Tensor, places: list[tuple[int, int]]) -> None:
    """Let no (row, token) of ``places`` be sampled."""
    rows, tokens = (to_device([place[i] for place in places], logits.device) for i in (0, 1))
    logits.index_put_((rows, tokens), logits.new_full((), -math.inf))


def _draw(logits: Tensor, rows: Sequence[SampledRow]) -> Tensor:
    """Sample softmax(logits / temperature) by inverse transform: one uniform number per row.

    The largest logit is subtracted before the division, so that no temperature overflows. What
    is counted are the tokens whose running sum is not above the drawn share of the whole: the last
    token's never is, and a comparison with NaN is false, so every pick is in the vocabulary.
    The numbers are drawn last: a row that fails before has used up no number of another.
    """
    temperatures = _column([row.params.temperature for row in rows], logits.device)
    largest = logits.amax(dim=-1, keepdim=True)
    weights = ((logits - largest) / temperatures).exp()
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    uniforms = _column([_uniform(row.generator) for row in rows], logits.device)
    below = cumulative[:, :-1] <= uniforms * cumulative[:, -1:]
    return below.sum(dim=-1)


def _uniform(generator: torch.Generator | None) -> float:
    """Draw from 0 .. 1 - 2**-53, so that the product with a total stays below that total."""
    return float(torch.rand((), dtype=torch.float64, generator=generator))


def _column(values: list[float], device: torch.device) -> Tensor:
    column = torch.tensor(values, dtype=torch.float64)[:, None]
    return column.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else column
