"""The text of single tokens, as logprobs name them."""

from servetwin.engine.text.tokenizer import Tokenizer, decoded


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
