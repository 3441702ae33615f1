"""The text of one output as its client may see it: cut before a stop string."""

from engine.text.tokenizer import IncrementalDecoder


class TextStream:
    """Decodes token by token and holds back what may still turn into a stop string."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = stop
        self._decoder = IncrementalDecoder()
        self._pending = ""

    def push(self, token_id: int, may_stop: bool = True) -> tuple[str, bool]:
        """Return the text to send, and whether a stop string ended the output just before it.

        Text that comes while ``may_stop`` is false is never part of a stop string.
        """
        text = self._decoder.push(token_id)
        if not self._stop:
            return text, False
        text = self._pending + text
        self._pending = ""
        return self._cut(text) if may_stop else (text, False)

    def flush(self) -> str:
        """Return the text that was held back, when the output ends for another reason."""
        text = self._pending + self._decoder.flush()
        self._pending = ""
        return text

    def _cut(self, text: str) -> tuple[str, bool]:
        found = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if found:
            return text[: min(found)], True
        held = max(_overlap(text, stop) for stop in self._stop)
        self._pending = text[len(text) - held :]
        return text[: len(text) - held], False


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of ``text`` that is a prefix of ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
