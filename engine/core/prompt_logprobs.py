"""Logprobs of the tokens of prompts, collected chunk by chunk until the first token is sampled."""

from collections.abc import Mapping
from collections.abc import Sequence as Listed

from torch import Tensor

from servetwin.engine.core.step_input import Share
from servetwin.engine.sampling.sampler import token_logprobs
from servetwin.engine.sampling.token_state import NewToken, TokenState
from servetwin.policies.sequence import Sequence

# Rows whose logprobs are computed at a time: each is a copy of the vocabulary in memory.
_ROWS = 128


def keep_prompt_logprobs(
    logits: Tensor, shares: Listed[Share], states: Mapping[str, TokenState]
) -> Tensor:
    """Keep the logprobs of prompts in ``states``; return the logits of the rows that sample."""
    if not any(share.prompt_logprobs for share in shares):
        return logits
    sampled: list[int] = []
    row = 0
    for share in shares:
        stop = row + share.prompt_logprobs
        if stop > row:
            _keep(logits[row:stop], share.entry.start + 1, states[share.entry.seq.output_id])
        row += len(share.sampled)
        sampled += range(stop, row)
    return logits[sampled]


def _keep(logits: Tensor, begin: int, state: TokenState) -> None:
    """Keep the logprobs of the tokens from position ``begin`` on, one for each row."""
    top = state.params.prompt_logprobs or 0
    for done in range(0, len(logits), _ROWS):
        rows = logits[done : done + _ROWS]
        first = begin + done
        token_ids = state.token_ids[first : first + len(rows)]
        logprobs = token_logprobs(rows, token_ids, [top] * len(rows))
        state.prompt_logprobs.update(enumerate(logprobs, first))


def add_prompt_logprobs(
    seq: Sequence, state: TokenState, tokens: dict[str, list[NewToken]]
) -> None:
    """Add what is known of a prompt to the first tokens of its answers, where it is wanted."""
    if not state.wants_prompt_logprobs(seq.prompt_tokens):
        return
    known = (None, *(state.prompt_logprobs[place] for place in range(1, seq.prompt_tokens)))
    for name in seq.output_ids():
        first, *others = tokens[name]
        tokens[name] = [first._replace(prompt_logprobs=known), *others]
