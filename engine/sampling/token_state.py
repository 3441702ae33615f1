"""What an executor keeps of a sequence: tokens, and how the next is chosen. Free of torch.

Beside it, a new token, and the logarithms of probabilities at its place.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servetwin.engine.sampling.sampling_params import SamplingParams, new_seed


class TokenLogprobs(NamedTuple):
    """Logarithms of probabilities at the place of one token.

    They are of the logits as the model gave them (vLLM's ``raw_logprobs``).
    """

    chosen: float
    """Of the token itself."""
    top: tuple[tuple[int, float], ...] = ()
    """(token, logprob) of the likeliest ones, the likeliest first."""


class NewToken(NamedTuple):
    """A token that was sampled, or drafted and accepted."""

    token_id: int
    drafted: int = 0
    """Tokens drafted for the pass that this token begins."""
    logprobs: TokenLogprobs | None = None
    """Where the request wants them."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """Of the tokens of the prompt, with the first token where the request wants them."""


Ints = NDArray[np.int64]


class SeenTokens:
    """Marks of the different tokens of a sequence, for penalties.

    A mark is twice how often the token was generated, plus 1 if it is in the prompt. Only the
    tokens since the last call are read. ``token_ids``, of which the first ``prompt_tokens`` are the
    prompt, belongs to the sequence and only grows.
    """

    def __init__(self, token_ids: list[int], prompt_tokens: int) -> None:
        self._token_ids = token_ids
        self._read = prompt_tokens
        self._ids: Ints = np.unique(np.array(token_ids[:prompt_tokens], dtype=np.int64))
        self._marks: Ints = np.ones_like(self._ids)
        self._places = {token: place for place, token in enumerate(self._ids.tolist())}

    def marks(self, drafted: Iterable[int] = ()) -> tuple[Ints, Ints]:
        """Return the token ids and their marks, as if the drafted tokens were generated too."""
        fresh, self._read = self._token_ids[self._read :], len(self._token_ids)
        for token in fresh:
            place = self._place(token)  # which may make room
            self._marks[place] += 2
        size = len(self._places)
        ids, marks = self._ids[:size], self._marks[:size]
        if not drafted:
            return ids, marks
        copy = SeenTokens([], 0)
        copy._ids, copy._marks, copy._places = ids.copy(), marks.copy(), dict(self._places)
        copy._token_ids = list(drafted)
        return copy.marks()

    def _place(self, token: int) -> int:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            room = np.zeros(max(16, place), dtype=np.int64)
            self._ids = np.concatenate((self._ids, room))
            self._marks = np.concatenate((self._marks, room))
        self._ids[place] = token
        return place


@dataclass(frozen=True, slots=True)
class SampledRow:
    """The sampling state of the sequence behind one row of logits."""

    params: SamplingParams
    generated_tokens: int
    """The output's tokens before the one that is chosen, with those that are only drafted."""
    seed: int = 0
    seen: SeenTokens | None = None
    """Given where the parameters have penalties."""
    drafted: tuple[int, ...] = ()
    """Tokens after the sequence's own that are supposed to stand before this row."""


@dataclass(slots=True)
class TokenState:
    """The tokens of one sequence, prompt and generated, and how to choose the next."""

    token_ids: list[int]
    params: SamplingParams
    seed: int = 0
    """Its own, where ``params`` has none."""
    seen: SeenTokens | None = None
    """What penalties count; None without them."""
    prompt_logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)
    """By position, where they are wanted."""
    is_plain: bool = field(init=False)
    """Whether each token is the likeliest one, and nothing else is wanted of it."""

    def __post_init__(self) -> None:
        params = self.params
        wants_more = params.logprobs is not None or params.prompt_logprobs is not None
        self.is_plain = params.is_argmax and not wants_more

    def wants_prompt_logprobs(self, prompt_tokens: int) -> bool:
        """Return whether they are wanted and not sent: a prompt may be computed anew later."""
        return self.params.prompt_logprobs is not None and len(self.token_ids) <= prompt_tokens

    def row(self, generated_tokens: int) -> SampledRow:
        """Return how the token after ``generated_tokens`` of the output is chosen."""
        return SampledRow(self.params, generated_tokens, self.seed, self.seen)


def token_state(token_ids: list[int], params: SamplingParams) -> TokenState:
    """Return the state of a new sequence, whose tokens are its prompt."""
    seed = new_seed() if params.seed is None else params.seed
    seen = SeenTokens(token_ids, len(token_ids)) if params.has_penalties else None
    return TokenState(token_ids, params, seed, seen)
