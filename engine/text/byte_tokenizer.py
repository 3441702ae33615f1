"""A byte-level tokenizer: any text is a prompt, and every token has a text of its own.

Ids 0 .. 255 are the bytes of UTF-8, 256 is the end of sequence, 257 and 258 are reserved. The model
has random weights, so the ids above stand for nothing; they read as ``" w<id>"``.
"""

import codecs
from dataclasses import dataclass

from servetwin.engine.sampling.sampling_params import EOS_ID
from servetwin.engine.text.chat_template import plain_chat
from servetwin.engine.text.tokenizer import Chat

FIRST_WORD_ID = 259

_BYTES = [bytes([value]) for value in range(256)]
_UTF8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True)
class ByteTokenizer:
    """The ``Tokenizer`` of the seeded presets."""

    eos_ids: tuple[int, ...] = (EOS_ID,)
    has_template = False
    is_slow = False

    def encode(self, text: str) -> list[int]:
        """Return one token per byte of UTF-8."""
        return list(text.encode())

    def chat_ids(self, chat: Chat) -> list[int]:
        """Return the token ids of the plain template."""
        return self.encode(plain_chat(chat))

    def decoder(self) -> "ByteDecoder":
        """Return the decoder of a new output."""
        return ByteDecoder()


class ByteDecoder:
    """Text of one output, token by token; a character comes with the last of its bytes.

    Bytes that are not UTF-8 become U+FFFD, special ids nothing.
    """

    def __init__(self) -> None:
        self._utf8 = _UTF8(errors="replace")

    def push(self, token_id: int) -> str:
        """Return the text that ``token_id`` completes, often empty inside a character."""
        if token_id < EOS_ID:
            return self._utf8.decode(_BYTES[token_id])
        if token_id < FIRST_WORD_ID:
            return self.flush()
        return f"{self.flush()} w{token_id}"

    def flush(self) -> str:
        """Return the text of the bytes of an unfinished character."""
        return self._utf8.decode(b"", final=True)
