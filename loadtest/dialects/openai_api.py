"""Servers of OpenAI's API alone: vLLM, TensorRT-LLM, MLC LLM, ``transformers serve``, any other."""

import json
from typing import ClassVar

from servetwin.loadtest.dialects.dialect import Api, Dialect, PreparedRequest
from servetwin.loadtest.dialects.native_event import fields_of
from servetwin.loadtest.dialects.server_probe import ServerProbe

_ENDLESS = json.dumps({"eos_token_id": -1})
_PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
}


class OpenAI(Dialect):
    """Any server with OpenAI's API, and the default.

    Follows OpenAI's API reference. The length is forced with ``min_tokens`` and ``ignore_eos``, as
    in vLLM and many others; OpenAI's own service refuses these: use ``--no-force-length``.
    """

    name = "openai"
    apis: ClassVar[tuple[Api, ...]] = ("completions", "chat", "embeddings")
    takes_ids = True
    forces_length = True
    stream_options: ClassVar[dict[str, bool]] = {"include_usage": True}

    def path(self, api: Api, model: str) -> str:
        """Return the path of the API."""
        return _PATHS[api]

    def body(self, api: Api, request: PreparedRequest) -> dict[str, object]:
        """Return a body with a prompt, with messages, or with the input of an embedding."""
        if api == "embeddings":
            return {"model": request.model, "input": request.prompt}
        return {
            "model": request.model,
            **({"messages": request.chat} if api == "chat" else {"prompt": request.prompt}),
            "max_tokens": request.output_tokens,
            **(self.exactly(request.output_tokens) if request.force_length else {}),
            "temperature": 0,
            "stream": True,
            "stream_options": self.stream_options,
        }

    def exactly(self, output_tokens: int) -> dict[str, object]:
        """Return the fields that force the output length."""
        return {"min_tokens": output_tokens, "ignore_eos": True}


class Vllm(OpenAI):
    """vLLM.

    Follows vLLM's documentation of its OpenAI-compatible server: prompts of token ids,
    ``min_tokens``, ``ignore_eos``, and usage with every event (``continuous_usage_stats``), which
    says how many tokens an event holds. Tested against vLLM 0.32 on a CPU.
    """

    name = "vllm"
    owners = frozenset({"vllm"})
    guesses_vocab = True
    stream_options: ClassVar = {"include_usage": True, "continuous_usage_stats": True}

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise its version, and model cards with permissions."""
        versioned = isinstance(server.page("/version").get("version"), str)
        return versioned and any("permission" in card for card in server.models)


class TensorRTLLM(OpenAI):
    """TensorRT-LLM's own server, ``trtllm-serve``.

    Follows TensorRT-LLM's documentation of trtllm-serve and the schema of its requests: prompts of
    token ids, ``min_tokens``, ``ignore_eos``, ``continuous_usage_stats``; unknown fields are
    refused. Tested against a server that answers as documented, not against TensorRT-LLM. Behind
    Triton it speaks the dialect ``triton``.
    """

    name = "tensorrt-llm"
    apis = ("completions", "chat")
    owners = frozenset({"tensorrt_llm"})
    guesses_vocab = True
    stream_options = Vllm.stream_options


class Mlc(OpenAI):
    """MLC LLM.

    Follows MLC LLM's documentation of its REST API: prompts of token ids; the end token is ignored
    with ``debug_config.ignore_eos``, which takes effect when the server runs with
    ``--enable-debug`` (without it answers end early, and the report counts them). Tested against a
    server that answers as documented, not against MLC LLM.
    """

    name = "mlc"
    owners = frozenset({"MLC-LLM"})
    guesses_vocab = True

    def exactly(self, output_tokens: int) -> dict[str, object]:
        """Return the field that ignores the end token; there is no minimum."""
        return {"debug_config": {"ignore_eos": True}}


class Transformers(OpenAI):
    """Hugging Face's ``transformers serve``.

    Follows its documentation and the schema of its requests: prompts are text, unknown fields are
    refused, and ``generation_config`` replaces the model's own settings: with an end token that no
    vocabulary has, only ``max_tokens`` ends an answer. The last event always has the usage. Models
    are loaded by the requested name, which may be a folder; only models in its cache are listed.
    Tested against release 5.23, with continuous batching and without.
    """

    name = "transformers"
    apis = ("completions", "chat")
    takes_ids = False
    loads_unlisted: ClassVar = True

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the paths of its description: only this server has ``/load_model``."""
        paths = fields_of(server.page("/openapi.json").get("paths"))
        return {"/load_model", "/v1/completions", "/v1/responses"} <= paths.keys()

    def exactly(self, output_tokens: int) -> dict[str, object]:
        """Return a setting with an end token that no vocabulary has; there is no minimum."""
        return {"generation_config": _ENDLESS}
