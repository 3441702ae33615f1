"""Prefix ids of a trace that has none, by an assumption on what its prompts have in common.

A trace that has ids keeps them: what was recorded wins over what is assumed.
"""

from dataclasses import replace
from itertools import count, islice, repeat

import numpy as np

from servetwin.workloads.generators.prefixes import PrefixShares
from servetwin.workloads.request import Request, with_columns
from servetwin.workloads.trace import Trace

BLOCK_TOKENS = 16


def with_shared_texts(trace: Trace, share: float, texts: int, seed: int) -> Trace:
    """Return the trace with prompts that begin like one of ``texts``, for a ``share`` of their
    length, as ``PrefixShares`` draws them by ``seed``."""
    if not share or trace.has_prefix_ids:
        return trace
    structure = PrefixShares(texts, share, block_tokens=BLOCK_TOKENS)
    prompts = np.array([request.prompt_tokens for request in trace], dtype=np.int64)
    ids = structure.block_ids(prompts, np.random.default_rng(seed))
    requests = with_columns(
        trace.requests, prefix_block_ids=ids, block_tokens=repeat(BLOCK_TOKENS, len(ids))
    )
    note = f"assumed: {share:g} of each prompt begins like one of {texts} texts (seed {seed})"
    return trace.replaced([*requests], note)


def with_conversations(trace: Trace) -> Trace:
    """Return the trace with prompts that begin with the prompt and the answer before them in their
    session; a prompt that is too short for that begins anew."""
    if trace.has_prefix_ids or not any(request.session_id for request in trace):
        return trace
    latest: dict[str, tuple[int, tuple[int, ...]]] = {}
    own_ids = count()
    requests = []
    for request in trace:
        tokens, chain = latest.get(request.session_id or "", (0, ()))
        begins = chain if tokens <= request.prompt_tokens else ()
        whole = request.total_tokens // BLOCK_TOKENS
        chain = (*begins, *islice(own_ids, whole - len(begins)))
        requests.append(_with_chain(request, chain))
        if request.session_id:
            latest[request.session_id] = request.total_tokens, chain
    return trace.replaced(requests, "assumed: a prompt begins with its session so far")


def _with_chain(request: Request, chain: tuple[int, ...]) -> Request:
    """Return the request with one id per full block of its prompt, then those of its answer."""
    full = request.prompt_tokens // BLOCK_TOKENS
    return replace(
        request,
        prefix_block_ids=chain[:full],
        answer_block_ids=chain[full:],
        block_tokens=BLOCK_TOKENS,
    )
