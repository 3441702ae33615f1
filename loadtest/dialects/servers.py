"""Servers and their dialects, by name, by what a server says of itself, and by its events.

Three need no more than their row in ``servers.json``:

``openai``: any server with OpenAI's API, and the default. Follows OpenAI's API reference. The
length is forced with ``min_tokens`` and ``ignore_eos``, as in vLLM and many others; OpenAI's own
service refuses these: use ``--no-force-length``.

``tensorrt-llm``: TensorRT-LLM's own server. Follows the documentation of trtllm-serve and the
schema of its requests: prompts of token ids, ``min_tokens``, ``ignore_eos``,
``continuous_usage_stats``; unknown fields are refused. Behind Triton it speaks ``triton``.

``mlc``: MLC LLM. Follows the documentation of its REST API: prompts of token ids; the end token is
ignored with ``debug_config.ignore_eos``, which takes effect when the server runs with
``--enable-debug`` (without it answers end early, and the report counts them).

The last two were tested against a server that answers as documented, not against themselves.
"""

from collections.abc import Mapping
from typing import Any

from servetwin.loadtest.dialects.dialect import (
    SERVERS,
    Api,
    Dialect,
    ModelFacts,
    NativeEvent,
    PreparedRequest,
    count,
    usage_of,
)
from servetwin.loadtest.dialects.server_probe import ServerProbe, fields_of
from servetwin.workloads.errors import LoadTestError, did_you_mean


class Vllm(Dialect):
    """vLLM.

    Follows vLLM's documentation of its OpenAI-compatible server: prompts of token ids,
    ``min_tokens``, ``ignore_eos``, and usage with every event (``continuous_usage_stats``), which
    says how many tokens an event holds. Tested against vLLM 0.32 on a CPU.
    """

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise its version, and model cards with permissions."""
        versioned = isinstance(server.page("/version").get("version"), str)
        return versioned and any("permission" in card for card in server.models)


class Transformers(Dialect):
    """Hugging Face's ``transformers serve``.

    Follows its documentation and the schema of its requests: prompts are text, unknown fields are
    refused, and ``generation_config`` replaces the model's own settings: with an end token that no
    vocabulary has, only ``max_tokens`` ends an answer. The last event always has the usage. Models
    are loaded by the requested name, which may be a folder; only models in its cache are listed.
    Tested against release 5.23, with continuous batching and without.
    """

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the paths of its description: only this server has ``/load_model``."""
        paths = fields_of(server.page("/openapi.json").get("paths"))
        return {"/load_model", "/v1/completions", "/v1/responses"} <= paths.keys()


class SGLang(Dialect):
    """SGLang: its native ``/generate``, and OpenAI's API.

    Follows SGLang's documentation of its native API and sampling parameters: ``input_ids`` or
    ``text``; ``min_new_tokens`` and ``ignore_eos`` force the length. The stream repeats the
    whole text in every event, with ``meta_info.completion_tokens`` made so far; their
    differences are counted, so that it does not matter how many tokens an event holds, nor
    whether the text is repeated. A request that the server gives up ends with the finish reason
    ``abort``. Tested against a server that answers as documented, not against SGLang.
    """

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the page about the model, by its older or newer name."""
        pages = (server.page("/get_model_info"), server.page("/model_info"))
        return any("model_path" in page and "is_generation" in page for page in pages)

    def native_body(self, request: PreparedRequest) -> dict[str, object]:
        """Return the body of a request to ``/generate``."""
        sampling: dict[str, object] = {"temperature": 0, "max_new_tokens": request.output_tokens}
        if request.force_length:
            sampling |= {"min_new_tokens": request.output_tokens, "ignore_eos": True}
        field = "text" if isinstance(request.prompt, str) else "input_ids"
        return {field: request.prompt, "sampling_params": sampling, "stream": True}

    def read(self, event: dict[str, object]) -> NativeEvent:
        """Read an event of ``/generate``."""
        meta = fields_of(event[self.mark])
        reason = fields_of(meta.get("finish_reason"))
        made = count(meta.get("completion_tokens"))
        return NativeEvent(
            made=made,
            text=bool(event.get("text")),
            ends=meta.get("finish_reason") is not None,
            usage=usage_of(meta.get("prompt_tokens"), made, meta.get("cached_tokens")),
            response_id=str(meta.get("id") or ""),
            error=str(reason.get("message", "aborted")) if reason.get("type") == "abort" else None,
        )


class Tgi(Dialect):
    """Hugging Face's text-generation-inference: its native ``/generate_stream``, and OpenAI's API.

    Follows TGI's documentation and published schema: prompts are text, and nothing forces a
    length beyond ``max_new_tokens``. Each event holds one token, special ones included; the
    last has ``details`` with the counts. Tested against a server that answers as documented,
    not against TGI.
    """

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the page about the model, with the limits of its router."""
        info = server.page("/info")
        return "model_id" in info and "max_total_tokens" in info

    def models(self, server: ServerProbe) -> list[Mapping[str, Any]]:
        """Return the model of that page, else OpenAI's list."""
        model = server.page("/info").get("model_id")
        return [{"id": model}] if isinstance(model, str) else server.models

    def facts(self, server: ServerProbe, card: Mapping[str, Any]) -> ModelFacts:
        """Return the limit of prompt and output together."""
        return ModelFacts(max_model_len=count(server.page("/info").get("max_total_tokens")))

    def native_body(self, request: PreparedRequest) -> dict[str, object]:
        """Return the body of a request to ``/generate_stream``."""
        parameters = {"max_new_tokens": request.output_tokens, "do_sample": False, "details": True}
        return {"inputs": request.prompt, "parameters": parameters}

    def sampled(
        self, api: Api, body: Mapping[str, Any], sampling: Mapping[str, float]
    ) -> dict[str, object]:
        """Return a body with sampling parameters, which the native API takes when it samples."""
        sampled = {"do_sample": True, **sampling} if api == "native" else sampling
        return super().sampled(api, body, sampled)

    def read(self, event: dict[str, object]) -> NativeEvent:
        """Read an event of ``/generate_stream``."""
        details = fields_of(event.get("details"))
        usage = usage_of(details.get("input_length"), details.get("generated_tokens"))
        return NativeEvent(tokens=1, ends=event.get("generated_text") is not None, usage=usage)


class LlamaCpp(Dialect):
    """llama.cpp's server: its native ``/completion``, and OpenAI's API.

    Follows the README of llama.cpp's server: prompts of token ids; ``n_predict`` and
    ``ignore_eos`` force the length. Events hold ``content`` and the ids in ``tokens``; newer
    servers also count the tokens so far, including tokens held back until a character is
    complete. The last event has ``stop`` and the counts; ``timings.cache_n`` are the prompt
    tokens that were cached. Tested against a server that answers as documented, not against
    llama.cpp.
    """

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise its name in the headers, or the page of its properties."""
        named = server.headers.get("server", "").startswith("llama.cpp")
        return named or "default_generation_settings" in server.page("/props")

    def facts(self, server: ServerProbe, card: Mapping[str, Any]) -> ModelFacts:
        """Return the vocabulary of the model and the context of one slot."""
        settings = fields_of(server.page("/props").get("default_generation_settings"))
        vocab_size = count(fields_of(card.get("meta")).get("n_vocab"))
        return ModelFacts(vocab_size or None, count(settings.get("n_ctx")) or None)

    def native_body(self, request: PreparedRequest) -> dict[str, object]:
        """Return the body of a request to ``/completion``."""
        return {
            "prompt": request.prompt,
            "n_predict": request.output_tokens,
            **(self.exactly(request.output_tokens) if request.force_length else {}),
            "temperature": 0,
            "cache_prompt": True,
            "return_tokens": True,
            "stream": True,
        }

    def read(self, event: dict[str, object]) -> NativeEvent:
        """Read an event of ``/completion``; the counts of the last one are the usage."""
        made = count(event.get("tokens_predicted"))
        if event[self.mark] is True:
            cached = fields_of(event.get("timings")).get("cache_n")
            usage = usage_of(event.get("tokens_evaluated"), made, cached)
            return NativeEvent(tokens=0, ends=True, usage=usage)
        ids = event.get("tokens")
        listed = len(ids) if isinstance(ids, list) and ids else None
        return NativeEvent(tokens=listed, made=made, text=bool(event.get("content")))


class Triton(Dialect):
    """NVIDIA Triton with its TensorRT-LLM backend: ``generate_stream``.

    Follows the documentation of Triton's generate extension and of its TensorRT-LLM backend:
    ``text_input``, ``max_tokens``, ``stream``. Prompts are text, and no length is forced. The
    stream has neither token counts nor usage nor an end mark: an event with text counts as one
    token, a connection that closes in order as the end. Models are not listed; ``ensemble`` is
    the backend's usual one. Tested against a server that answers as documented, not against
    Triton.
    """

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the page of its metadata."""
        return server.page("/v2").get("name") == "triton"

    def native_body(self, request: PreparedRequest) -> dict[str, object]:
        """Return the inputs of the backend's ensemble."""
        inputs = {"text_input": request.prompt, "max_tokens": request.output_tokens, "stream": True}
        return {**inputs, "bad_words": "", "stop_words": ""}

    def read(self, event: dict[str, object]) -> NativeEvent:
        """Read an event of ``generate_stream``; each may be the last."""
        return NativeEvent(text=bool(event[self.mark]), ends=True)


class Ollama(Dialect):
    """Ollama: its native ``/api/generate``, and OpenAI's API.

    Follows Ollama's API documentation: prompts are text, sent ``raw`` (without the model's
    template); ``options.num_predict`` limits the length, and nothing forces it. The stream is
    one JSON object per line; each with text in ``response`` (or ``thinking``) counts as a
    token, and the last has the counts. ``prompt_eval_count`` is the length of the prompt after
    Ollama has cut it to its context. Tested against a server that answers as documented, not
    against Ollama.
    """

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise its own list of models and its version."""
        listed = isinstance(server.page("/api/tags").get("models"), list)
        return listed and "version" in server.page("/api/version")

    def models(self, server: ServerProbe) -> list[Mapping[str, Any]]:
        """Return OpenAI's list of models, else Ollama's own."""
        return server.models or _named(server.page("/api/tags").get("models"))

    def facts(self, server: ServerProbe, card: Mapping[str, Any]) -> ModelFacts:
        """Return the context of the model where it is loaded."""
        loaded = _named(server.page("/api/ps").get("models"))
        lengths = [m.get("context_length") for m in loaded if m["id"] == card["id"]]
        return ModelFacts(max_model_len=count(lengths[0]) if lengths else None)

    def native_body(self, request: PreparedRequest) -> dict[str, object]:
        """Return the body of a request to ``/api/generate``."""
        options = {"num_predict": request.output_tokens, "temperature": 0}
        prompt = {"model": request.model, "prompt": request.prompt, "raw": True}
        return {**prompt, "options": options, "stream": True}

    def read(self, event: dict[str, object]) -> NativeEvent:
        """Read a line of ``/api/generate``; the counts of the last one are the usage."""
        usage = usage_of(event.get("prompt_eval_count"), event.get("eval_count"))
        text = bool(event.get("response") or event.get("thinking"))
        return NativeEvent(text=text, ends=event[self.mark] is True, usage=usage)


def _named(models: object) -> list[Mapping[str, Any]]:
    """Return Ollama's entries as model cards."""
    entries = models if isinstance(models, list) else []
    named = (m for m in entries if isinstance(m, Mapping) and isinstance(m.get("name"), str))
    return [{**entry, "id": entry["name"]} for entry in named]


# Those that need more than their row in ``servers.json``, whose order is that of recognition:
# Ollama comes last, since others answer on its pages too.
_KINDS = {
    "vllm": Vllm, "sglang": SGLang, "tgi": Tgi, "llamacpp": LlamaCpp, "triton": Triton,
    "transformers": Transformers, "ollama": Ollama,
}  # fmt: skip
DIALECTS = {name: _KINDS.get(name, Dialect)(name) for name in SERVERS}

_NATIVE = {dialect.mark: dialect for dialect in DIALECTS.values() if dialect.mark}


def dialect_named(name: str) -> Dialect:
    """Return the dialect of a name. Raises ``LoadTestError`` for an unknown one."""
    if name not in DIALECTS:
        hint = did_you_mean(name, DIALECTS, f"there are {', '.join(DIALECTS)}")
        raise LoadTestError(f"--dialect {name}: unknown; {hint}")
    return DIALECTS[name]


def dialect_of(server: ServerProbe) -> Dialect:
    """Return the dialect of a server: by the owner of its models, by its pages, else OpenAI's.

    Raises the ``complaint`` of the server where it has no models either.
    """
    for dialect in DIALECTS.values():
        if server.owner in dialect.owners:
            return dialect
    for dialect in DIALECTS.values():
        if dialect.recognises(server):
            return dialect
    if server.complaint:
        raise server.complaint
    return DIALECTS["openai"]


def read_native(event: dict[str, object]) -> NativeEvent | None:
    """Read an event of a native stream; None for an event of OpenAI's API or an unknown kind.

    The kind is recognised by the event itself, so a stream is read right even where the dialect of
    the server was not.
    """
    if "choices" in event:
        return None
    return next((_NATIVE[mark].read(event) for mark in _NATIVE if mark in event), None)
