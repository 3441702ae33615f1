"""Drafts that cost no model: what followed the last tokens when they last stood together.

Prompt lookup (Saxena, 2023): answers often repeat their prompt, or themselves.
"""

import numpy as np
import torch

from servetwin.engine.core.runner import TokenState
from servetwin.engine.drafting.proposals import NOTHING, Pass, Proposals, all_greedy
from servetwin.engine.kv.kv_store import KVStore
from servetwin.policies.batch import ScheduledSequence

_TOKEN_BYTES = 4


class NGramDrafter:
    """Proposes the ``drafts`` tokens that followed the longest match, of at most ``longest``."""

    store: KVStore | None = None

    def __init__(self, drafts: int, longest: int, vocab_size: int, device: torch.device) -> None:
        self._drafts = drafts
        self._longest = longest
        self._vocab_size = vocab_size
        self._device = device

    def draft(
        self, passes: list[Pass], prompts: list[tuple[ScheduledSequence, TokenState]]
    ) -> Proposals:
        """Look up each pass; prompts need nothing."""
        del prompts
        tokens = [continuation(one.state.token_ids, self._drafts, self._longest) for one in passes]
        if all_greedy(passes):
            return Proposals(tokens, None)
        proposed = torch.tensor(tokens, device=self._device)
        chances = torch.zeros(*proposed.shape, self._vocab_size, device=self._device)
        made = (proposed != NOTHING).to(chances.dtype)
        chances.scatter_(2, proposed.clamp(min=0)[..., None], made[..., None])
        return Proposals(tokens, chances)


def continuation(token_ids: list[int], drafts: int, longest: int) -> list[int]:
    """Return what followed the last tokens where they stood before, latest place first."""
    known = np.array(token_ids, dtype=np.int32).tobytes()
    for length in range(min(longest, len(token_ids) - 1), 0, -1):
        place = _last_before(known, length)
        if place is not None:
            found = token_ids[place + length : place + length + drafts]
            return found + [NOTHING] * (drafts - len(found))
    return [NOTHING] * drafts


def _last_before(known: bytes, length: int) -> int | None:
    """Return the last place but the end of the ``length`` tokens at the end."""
    pattern, end = known[-length * _TOKEN_BYTES :], len(known) - 1
    while (at := known.rfind(pattern, 0, end)) >= 0:
        if at % _TOKEN_BYTES == 0:
            return at // _TOKEN_BYTES
        end = at + len(pattern) - 1
    return None
