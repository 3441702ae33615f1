"""How the two routes word logprobs."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from servetwin.engine.sampling.logprobs import TokenLogprobs
from servetwin.engine.text.text_stream import TokenTexts

LOWEST = -9999.0
"""Stands for minus infinity, which JSON has not (as in vLLM)."""

Token = tuple[int, TokenLogprobs | None]
"""A token and its logprobs; None for the first token of a prompt, before which there is nothing."""


def completion_logprobs(
    tokens: Sequence[Token], texts: TokenTexts, offset: int = 0
) -> dict[str, Any]:
    """Return the ``logprobs`` of a completion; ``offset`` is the length of the text before it.

    The likeliest tokens come with the chosen one where it is not among them. Of tokens with equal
    texts, only the likeliest can be said.
    """
    offsets = []
    for token_id, _ in tokens:
        offsets.append(offset)
        offset += len(texts.of(token_id))
    return {
        "tokens": [texts.of(token_id) for token_id, _ in tokens],
        "token_logprobs": [said and _number(said.chosen) for _, said in tokens],
        "top_logprobs": [said and _by_text(token_id, said, texts) for token_id, said in tokens],
        "text_offset": offsets,
    }


def chat_logprobs(tokens: Iterable[Token], texts: TokenTexts) -> dict[str, Any]:
    """Return the ``logprobs`` of a chat completion."""
    content = [
        _chat_token(token_id, said.chosen, texts)
        | {"top_logprobs": [_chat_token(*one, texts) for one in said.top]}
        for token_id, said in tokens
        if said
    ]
    return {"content": content, "refusal": None}


def _by_text(token_id: int, said: TokenLogprobs, texts: TokenTexts) -> dict[str, float]:
    by_text: dict[str, float] = {}
    for one, logprob in (*said.top, (token_id, said.chosen)):
        by_text.setdefault(texts.of(one), _number(logprob))
    return by_text


def _chat_token(token_id: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    text = texts.of(token_id)
    whole = "\N{REPLACEMENT CHARACTER}" not in text
    return {
        "token": text,
        "logprob": _number(logprob),
        "bytes": list(text.encode()) if whole else None,
    }


def _number(logprob: float) -> float:
    return LOWEST if math.isnan(logprob) else max(logprob, LOWEST)
