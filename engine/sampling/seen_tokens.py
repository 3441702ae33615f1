"""Which tokens a sequence has seen, and how often, kept between steps."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

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
