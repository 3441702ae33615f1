"""Logprobs of the tokens of prompts, collected chunk by chunk until the first token is sampled."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from servetwin.engine.sampling.logprobs import token_logprobs
from servetwin.engine.sampling.new_token import NewToken, TokenLogprobs
from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.policies.batch import ScheduledSequence
from servetwin.policies.sequence import Sequence

_ROWS = 128
"""Rows whose logprobs are computed at a time: so many copies of the vocabulary are in memory."""


class PromptState(Protocol):
    """What is known of a sequence, and the logprobs of its prompt so far."""

    token_ids: list[int]
    params: SamplingParams
    prompt_logprobs: dict[int, TokenLogprobs]
    """By position; the first token has none."""


class PromptSpan(NamedTuple):
    """Positions of a prompt in a step, each of which tells of the prompt's next token."""

    state: PromptState
    start: int
    row: int
    """That of the first position among the rows of the step."""
    positions: int


def prompt_spans(
    entries: list[ScheduledSequence], states: Mapping[str, PromptState]
) -> list[PromptSpan]:
    """Return the spans of the prompts that want logprobs; ``entries`` are as their rows are."""
    spans: list[PromptSpan] = []
    row = 0
    for entry in entries:
        positions = min(entry.tokens, entry.seq.prompt_tokens - 1 - entry.start)
        if positions > 0:
            state = states[entry.seq.output_id]
            if _is_wanted(state, entry.seq):
                spans.append(PromptSpan(state, entry.start, row, positions))
        row += entry.rows
    return spans


def keep_prompt_logprobs(logits: Tensor, spans: list[PromptSpan]) -> None:
    """Say what is in ``logits``, the rows of all spans, to the states of their sequences."""
    first = 0
    for state, start, _, positions in spans:
        top = state.params.prompt_logprobs or 0
        for done in range(0, positions, _ROWS):
            size = min(_ROWS, positions - done)
            begin = start + done + 1
            said = token_logprobs(
                logits[first + done : first + done + size],
                state.token_ids[begin : begin + size],
                [top] * size,
            )
            state.prompt_logprobs.update(enumerate(said, begin))
        first += positions


def say_prompt_logprobs(
    seq: Sequence, state: PromptState, found: dict[str, list[NewToken]]
) -> None:
    """Add what is known of a prompt to the first tokens of its answers, where it is wanted."""
    if not _is_wanted(state, seq):
        return
    known = (None, *(state.prompt_logprobs[place] for place in range(1, seq.prompt_tokens)))
    for name in seq.output_ids():
        first, *others = found[name]
        found[name] = [first._replace(prompt_logprobs=known), *others]


def _is_wanted(state: PromptState, seq: Sequence) -> bool:
    """Return whether they are wanted, and not told: a prompt may be computed anew later."""
    return state.params.prompt_logprobs is not None and len(state.token_ids) <= seq.prompt_tokens
