"""What the engine needs of a tokenizer. One is chosen at start, by the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# One turn of a chat, as OpenAI words it: ``role``, ``content``, and what tools need.
Message = Mapping[str, Any]


class ChatError(ValueError):
    """A chat that the template refuses, in one line."""


@dataclass(frozen=True, slots=True)
class Chat:
    """What a chat template gets to see. ``variables`` are those that only this template knows."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


class TextDecoder(Protocol):
    """Turns the tokens of one output into text, in pieces."""

    def push(self, token_id: int) -> str:
        """Return the text that is certain with ``token_id``; none shows half a character."""

    def flush(self) -> str:
        """Return the rest, at the end of the output."""


class Tokenizer(Protocol):
    """Text to token ids and back. It is picklable: the processes of a server share the choice."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end a sequence of the model."""

    @property
    def has_template(self) -> bool:
        """Whether chats have a template of the model's own, which knows tools and variables."""

    @property
    def is_slow(self) -> bool:
        """Whether a page of text takes milliseconds; the interpreter is free in the meantime."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a prompt."""

    def chat_ids(self, chat: Chat) -> list[int]:
        """Return the token ids of a chat, up to where the assistant answers.

        Raises ``ChatError`` where the template refuses the chat.
        """

    def decoder(self) -> TextDecoder:
        """Return the decoder of a new output."""


def decoded(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """Return the text of some tokens."""
    decoder = tokenizer.decoder()
    return "".join(map(decoder.push, token_ids)) + decoder.flush()
