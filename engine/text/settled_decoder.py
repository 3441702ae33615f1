"""Text of a tokenizer's output, token by token, equal to what decoding it at once gives.

A decoder of a whole output may join tokens: the bytes of a character lie in several, the first
word loses its leading space, and a run of byte tokens that is no UTF-8 is U+FFFD throughout. So a
window of the last tokens is decoded again with each, and what can no longer change is shown.
"""

from collections.abc import Callable

_HALF = "\ufffd"
"""What the bytes of an unfinished character decode to."""
_LONGEST_WINDOW, _KEPT = 24, 6


class SettledDecoder:
    """The ``TextDecoder`` over a function that decodes a list of tokens.

    ``skipped`` are ids without a text, and so are those from ``vocab_size`` on, which a model may
    have for no token. A run of ids of ``byte_ids`` is shown at its end: until then another may make
    it invalid as a whole.
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        vocab_size: int,
        skipped: frozenset[int] = frozenset(),
        byte_ids: frozenset[int] = frozenset(),
    ) -> None:
        self._decode = decode
        self._vocab_size = vocab_size
        self._skipped = skipped
        self._byte_ids = byte_ids
        self._window: list[int] = []
        self._shown = 0
        """How many characters of the window's text have been returned."""

    def push(self, token_id: int) -> str:
        """Return the text that is certain with ``token_id``."""
        if token_id in self._skipped or token_id >= self._vocab_size:
            return ""
        self._window.append(token_id)
        if token_id in self._byte_ids:
            return ""
        text = self._decode(self._window)
        settled = max(self._shown, len(text) - text.endswith(_HALF))
        fresh, self._shown = text[self._shown : settled], settled
        if len(self._window) > _LONGEST_WINDOW:
            self._shorten(text)
        return fresh

    def flush(self) -> str:
        """Return the text of what is still open."""
        text = self._decode(self._window)
        fresh, self._shown = text[self._shown :], len(text)
        return fresh

    def _shorten(self, text: str) -> None:
        """Keep the last tokens of the window: what they begin with has been shown, and does not
        change any more. A first word does, so they must have some text.
        """
        tail = self._decode(self._window[-_KEPT:])
        if tail:
            self._window = self._window[-_KEPT:]
            self._shown += len(tail) - len(text)
