"""Logarithms of probabilities, of the logits as the model gave them (vLLM's ``raw_logprobs``)."""

from collections.abc import Sequence

from torch import Tensor

from servetwin.engine.models.device import to_device
from servetwin.engine.sampling.new_token import TokenLogprobs


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
        TokenLogprobs(own, tuple(zip(ids[:top], values[:top], strict=True)))
        for own, ids, values, top in rows
    ]
