"""Request-level batching: how long a batch takes, and how much of its slots is used.

Slot efficiency is E[X] / E[max of the batch], the share of the steps of a saturated server that
make a token, when every batch runs until its longest request ends.
"""

import numpy as np
import numpy.typing as npt

from sim.theory.checks import TheoryError, check_not_negative, check_positive, check_whole


def static_batch_makespan_s(
    batch: int,
    prompt_tokens: int,
    output_tokens: int,
    *,
    prefill_s: float,
    step_s: float,
    per_context_token_s: float,
) -> float:
    """Seconds for ``batch`` equal requests that start together.

    The prefill makes the first tokens; decode step j costs
    ``step_s + per_context_token_s * batch * (prompt_tokens + j)``, an arithmetic series.
    """
    check_whole(batch=batch, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    check_not_negative(prefill_s=prefill_s, step_s=step_s, per_context_token_s=per_context_token_s)
    per_position_s = per_context_token_s * batch
    steps = output_tokens - 1
    growth_s = per_position_s * output_tokens * steps / 2
    return prefill_s + steps * (step_s + per_position_s * prompt_tokens) + growth_s


def exponential_slot_efficiency(batch: int) -> float:
    """Exponential lengths: 1 / (1 + 1/2 + ... + 1/batch) (Renyi 1953)."""
    check_whole(batch=batch)
    return float(1 / (1 / np.arange(1, batch + 1)).sum())


def geometric_slot_efficiency(batch: int, mean_tokens: float) -> float:
    """Geometric lengths of 1, 2, ... tokens: the mean over the sum of P(longest > k)."""
    check_whole(batch=batch)
    if not (np.isfinite(mean_tokens) and mean_tokens >= 1):
        raise TheoryError(f"mean_tokens must be at least 1, not {mean_tokens:g}")
    if mean_tokens == 1:
        return 1.0
    log_more = np.log1p(-1 / mean_tokens)  # of the probability of one token more
    lengths = np.arange(1, 1 + int(np.ceil(np.log(1e-17 / batch) / log_more)))
    longer = -np.expm1(batch * np.log1p(-np.exp(lengths * log_more)))
    return float(mean_tokens / (1 + longer.sum()))


def uniform_slot_efficiency(batch: int, longest_tokens: int) -> float:
    """Lengths uniform on 1 ... ``longest_tokens``: E[max] = M - sum over k < M of (k / M)^batch."""
    check_whole(batch=batch, longest_tokens=longest_tokens)
    below = np.arange(1, longest_tokens) / longest_tokens
    return float((longest_tokens + 1) / 2 / (longest_tokens - (below**batch).sum()))


def uniform_slot_efficiency_limit(batch: int) -> float:
    """Lengths uniform on an interval from 0, or on very many: (batch + 1) / (2 batch)."""
    check_whole(batch=batch)
    return (batch + 1) / (2 * batch)


def mean_longest(lengths: npt.ArrayLike, batch: int) -> float:
    """E[max] of ``batch`` draws with replacement from a sample of lengths.

    The i-th smallest of n is the longest with probability (i/n)^batch - ((i-1)/n)^batch.
    """
    check_whole(batch=batch)
    ordered = np.sort(np.asarray(lengths, np.float64))
    if ordered.size == 0:
        raise TheoryError("no lengths to draw from")
    check_positive(shortest_length=float(ordered[0]))
    at_most = (np.arange(ordered.size + 1) / ordered.size) ** batch
    return float(ordered @ np.diff(at_most))


def sampled_slot_efficiency(lengths: npt.ArrayLike, batch: int) -> float:
    """Slot efficiency of a sample of lengths."""
    longest = mean_longest(lengths, batch)
    return float(np.mean(np.asarray(lengths, np.float64))) / longest
