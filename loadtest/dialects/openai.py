"""OpenAI's completions and chat completions: the dialect of most servers, and the default.

Follows OpenAI's API reference. The length is forced with ``min_tokens`` and ``ignore_eos``, as in
vLLM and many others; OpenAI's own service refuses these: use ``--no-force-length``.
"""

from typing import Any, ClassVar

from loadtest.dialects.dialect import Api, Dialect, PreparedRequest

_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class OpenAI(Dialect):
    """Any server with OpenAI's API."""

    name = "openai"
    apis: ClassVar[tuple[Api, ...]] = ("completions", "chat")
    takes_ids = True
    forces_length = True
    stream_options: ClassVar[dict[str, bool]] = {"include_usage": True}

    def path(self, api: Api, model: str) -> str:
        """Return the path of the API."""
        return _PATHS[api]

    def body(self, api: Api, request: PreparedRequest) -> dict[str, Any]:
        """Return a body with a prompt, or with one user message."""
        chat = {"messages": [{"role": "user", "content": request.prompt}]}
        return {
            "model": request.model,
            **(chat if api == "chat" else {"prompt": request.prompt}),
            "max_tokens": request.output_tokens,
            **(self.exactly(request.output_tokens) if request.force_length else {}),
            "temperature": 0,
            "stream": True,
            "stream_options": self.stream_options,
        }

    def exactly(self, output_tokens: int) -> dict[str, Any]:
        """Return the fields that force the output length."""
        return {"min_tokens": output_tokens, "ignore_eos": True}


class NativeAndOpenAI(OpenAI):
    """A server with an API of its own at ``native_path``, beside OpenAI's."""

    apis = ("native", "completions", "chat")
    native_path: ClassVar[str]

    def path(self, api: Api, model: str) -> str:
        """Return the native path, or OpenAI's."""
        return self.native_path if api == "native" else super().path(api, model)

    def body(self, api: Api, request: PreparedRequest) -> dict[str, Any]:
        """Return the native body, or OpenAI's."""
        return self.native_body(request) if api == "native" else super().body(api, request)

    def native_body(self, request: PreparedRequest) -> dict[str, Any]:
        """Return the JSON body of the native API."""
        raise NotImplementedError
