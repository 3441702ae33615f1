"""What sampling parameters mean, in plain NumPy and float64: one token after the other."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from servetwin.engine.sampling.sampling_params import SamplingParams

Floats = NDArray[np.float64]


def reference_logits(
    logits: Sequence[float] | NDArray[np.float32],
    params: SamplingParams,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
) -> Floats:
    """Return the logits after bans, biases and penalties."""
    adjusted = np.array(logits, np.float64)
    for token in range(len(adjusted)):
        if params.allowed_token_ids and token not in params.allowed_token_ids:
            adjusted[token] = -np.inf
        adjusted[token] += dict(params.logit_bias).get(token, 0.0)
        ends = token in params.eos_ids or token in params.stop_token_ids
        if ends and len(output) < params.min_tokens:
            adjusted[token] = -np.inf
        if token in prompt or token in output:
            positive = adjusted[token] > 0
            adjusted[token] *= params.repetition_penalty ** (-1 if positive else 1)
        times = list(output).count(token)
        adjusted[token] -= params.frequency_penalty * times + params.presence_penalty * (times > 0)
    return adjusted


def reference_probabilities(
    logits: Sequence[float] | NDArray[np.float32],
    params: SamplingParams,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
) -> Floats:
    """Return the distribution of the next token of a sequence with a temperature."""
    adjusted = reference_logits(logits, params, prompt, output)
    chances = _softmax(adjusted / params.temperature)
    chances[chances < params.min_p * chances.max()] = 0
    if params.top_k:
        kth = np.sort(chances)[-min(params.top_k, len(chances))]
        chances[chances < kth] = 0
    chances /= chances.sum()
    dropped = 0.0
    if params.top_p < 1:
        for token in np.argsort(chances)[:-1]:
            dropped += chances[token]
            if dropped > 1 - params.top_p:
                break
            chances[token] = 0
    chances /= chances.sum()
    return chances


def _softmax(logits: Floats) -> Floats:
    weights: Floats = np.exp(logits - logits.max())
    weights /= weights.sum()
    return weights
