"""OpenAI's completions and chat completions, which most servers speak; the dialect of the rest.

Follows OpenAI's API reference. The length is forced as vLLM and many others allow it, by
``min_tokens`` and ``ignore_eos``; OpenAI's own service refuses these: ``--no-force-length``.
"""

from typing import Any, ClassVar

from loadtest.dialects.dialect import Api, Dialect, PreparedRequest

_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class OpenAI(Dialect):
    """Any server of OpenAI's API."""

    name = "openai"
    apis: ClassVar[tuple[Api, ...]] = ("completions", "chat")
    takes_ids = True
    forces_length = True
    stream_options: ClassVar[dict[str, bool]] = {"include_usage": True}

    def path(self, api: Api, model: str) -> str:
        """Of the API."""
        return _PATHS[api]

    def body(self, api: Api, ask: PreparedRequest) -> dict[str, Any]:
        """A prompt, or one message of a user."""
        chat = {"messages": [{"role": "user", "content": ask.prompt}]}
        return {
            "model": ask.model,
            **(chat if api == "chat" else {"prompt": ask.prompt}),
            "max_tokens": ask.output_tokens,
            **(self.exactly(ask.output_tokens) if ask.force_length else {}),
            "temperature": 0,
            "stream": True,
            "stream_options": self.stream_options,
        }

    def exactly(self, output_tokens: int) -> dict[str, Any]:
        """The fields that force the length."""
        return {"min_tokens": output_tokens, "ignore_eos": True}
