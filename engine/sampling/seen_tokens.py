"""Which tokens a sequence has seen, and how often, kept on the device between steps."""

import torch
from torch import Tensor

from engine.models.device import to_device


class SeenTokens:
    """Counts of a sequence's tokens, for penalties; only the tokens since the last call are read.

    ``token_ids``, of which the first ``prompt_tokens`` are the prompt, belongs to the sequence and
    only grows.
    """

    def __init__(self, token_ids: list[int], prompt_tokens: int) -> None:
        self._token_ids = token_ids
        self._prompt_tokens = prompt_tokens
        self._counted = 0
        self._counts: Tensor | None = None

    def counts(self, vocabulary: int, device: torch.device) -> Tensor:
        """Return int32 [vocabulary]: twice how often a token was generated, plus 1 if it is in the
        prompt.
        """
        if self._counts is None:
            self._counts = torch.zeros(vocabulary, dtype=torch.int32, device=device)
            prompt = to_device(self._token_ids[: self._prompt_tokens], device)
            self._counts.index_fill_(0, prompt, 1)
            self._counted = self._prompt_tokens
        if len(self._token_ids) > self._counted:
            fresh = to_device(self._token_ids[self._counted :], device)
            self._counts.index_add_(0, fresh, torch.full_like(fresh, 2, dtype=torch.int32))
            self._counted = len(self._token_ids)
        return self._counts
