"""Sampling: from logits to tokens, on the device of the logits.

A row's token depends on its logits, its parameters, its seed and its position alone: not on the
batch that it is in.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from servetwin.engine.models.device import to_device
from servetwin.engine.sampling.distribution import adjust, argmax, distribution
from servetwin.engine.sampling.noise import exponentials, row_bits
from servetwin.engine.sampling.token_state import NewToken, SampledRow, TokenLogprobs


def sample(logits: Tensor, rows: Sequence[SampledRow]) -> Tensor:
    """Return one token id per row of ``logits`` [rows, vocabulary]; ``logits`` may be overwritten.

    A batch whose rows all take their likeliest token costs no more than that.
    """
    if not all(row.params.is_argmax for row in rows):
        adjust(logits, rows)
    drawing, chances = _chances(logits, rows)
    if len(drawing) == len(rows):
        return draw(chances, rows)
    tokens = argmax(logits)
    if drawing:
        index = to_device(drawing, logits.device)
        tokens.index_copy_(0, index, draw(chances, [rows[place] for place in drawing]))
    return tokens


def new_tokens(logits: Tensor, rows: Sequence[SampledRow]) -> list[NewToken]:
    """Return what is chosen in each row, with logprobs where the row wants them."""
    wanted = [place for place, row in enumerate(rows) if row.params.logprobs is not None]
    if not wanted:
        return list(map(NewToken, sample(logits, rows).tolist()))
    untouched = logits.index_select(0, to_device(wanted, logits.device))
    tokens = [NewToken(token) for token in sample(logits, rows).tolist()]
    tops = [rows[place].params.logprobs or 0 for place in wanted]
    chosen = token_logprobs(untouched, [tokens[place].token_id for place in wanted], tops)
    for place, logprobs in zip(wanted, chosen, strict=True):
        tokens[place] = tokens[place]._replace(logprobs=logprobs)
    return tokens


def probabilities(logits: Tensor, rows: Sequence[SampledRow]) -> Tensor:
    """Return the distribution [rows, vocabulary] that ``sample`` draws each row's token from.

    That of a greedy row is 1 at its likeliest token. ``logits`` may be overwritten.
    """
    adjust(logits, rows)
    drawing, chances = _chances(logits, rows)
    if len(drawing) == len(rows):
        return chances
    every = torch.zeros_like(logits).scatter_(1, argmax(logits)[:, None], 1.0)
    return every.index_copy_(0, to_device(drawing, logits.device), chances) if drawing else every


def _chances(logits: Tensor, rows: Sequence[SampledRow]) -> tuple[list[int], Tensor]:
    """Return the rows that draw their token, and the distributions of these."""
    drawing = [place for place, row in enumerate(rows) if row.params.temperature > 0]
    if drawing and len(drawing) < len(rows):
        logits = logits.index_select(0, to_device(drawing, logits.device))
    params = [rows[place].params for place in drawing]
    return drawing, distribution(logits, params) if drawing else logits[:0]


def draw(weights: Tensor, rows: Sequence[SampledRow], stream: int = 0) -> Tensor:
    """Return one token id per row, drawn in proportion to ``weights`` [rows, vocabulary].

    Each token waits an exponential time with its weight as the rate, and the first one wins; so a
    token of weight 0 never does. ``stream`` numbers the independent draws of one position.
    """
    bits = row_bits([row.seed for row in rows], [row.generated_tokens for row in rows], stream)
    waits = exponentials(bits, weights.shape[1], weights.device)
    return argmax(weights / waits.neg_())


def token_logprobs(
    logits: Tensor, token_ids: Sequence[int], tops: Sequence[int]
) -> list[TokenLogprobs]:
    """Return, per row of ``logits``, the logprob of its token and of its ``tops`` likeliest ones.

    The likeliest token comes first; ``tops`` may differ from row to row.
    """
    scores = logits.log_softmax(-1)
    chosen = scores.gather(1, to_device(list(token_ids), logits.device)[:, None])
    best = scores.topk(min(max(tops), logits.shape[1]))
    rows = zip(
        chosen[:, 0].tolist(), best.indices.tolist(), best.values.tolist(), tops, strict=True
    )
    return [
        TokenLogprobs(logprob, tuple(zip(ids[:top], values[:top], strict=True)))
        for logprob, ids, values, top in rows
    ]
