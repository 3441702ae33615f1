"""The text of one output as its client may see it: cut before a stop string."""

from servetwin.engine.sampling.sampling_params import SamplingParams
from servetwin.engine.text.tokenizer import TextDecoder, Tokenizer, decoded


class TokenTexts:
    """Texts by token id, each made once. What is no text of its own holds U+FFFD."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def of(self, token_id: int) -> str:
        """Return the text of a token without what stands before it."""
        text = self._texts.get(token_id)
        if text is None:
            text = self._texts[token_id] = decoded(self._tokenizer, [token_id])
        return text


class OutputText:
    """The text of one output for its client, made from the tokens that the core has sent."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._stream = TextStream(tokenizer.decoder(), params.stop)
        self._min_tokens = params.min_tokens
        self._tokens = 0

    def read(self, token_id: int, is_last: bool) -> str:
        """Return the text to send with the next token."""
        self._tokens += 1
        text, found_stop = self._stream.push(token_id, self._tokens >= self._min_tokens)
        return text if found_stop or not is_last else text + self._stream.flush()


class TextStream:
    """Decodes token by token and holds back what may still turn into a stop string."""

    def __init__(self, decoder: TextDecoder, stop: tuple[str, ...] = ()) -> None:
        self._stop = stop
        self._decoder = decoder
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
        places = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if places:
            return text[: min(places)], True
        held = max(_overlap(text, stop) for stop in self._stop)
        self._pending = text[len(text) - held :]
        return text[: len(text) - held], False


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of ``text`` that is a prefix of ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
