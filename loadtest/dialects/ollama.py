"""Ollama: its native ``/api/generate``, and OpenAI's API.

Follows Ollama's API documentation: prompts are text, sent ``raw`` (without the model's template);
``options.num_predict`` limits the length, and nothing forces it. The stream is one JSON object per
line; each with text in ``response`` (or ``thinking``) counts as a token, and the last has the
counts. ``prompt_eval_count`` is the length of the prompt after Ollama has cut it to its context.
Tested against a server that answers as documented, not against Ollama.
"""

from collections.abc import Mapping
from typing import Any

from loadtest.dialects.dialect import ModelFacts, PreparedRequest
from loadtest.dialects.native_event import NativeEvent, count, usage_of
from loadtest.dialects.openai import NativeAndOpenAI
from loadtest.dialects.server_probe import ServerProbe

MARK = "done"


class Ollama(NativeAndOpenAI):
    """Ollama."""

    name = "ollama"
    native_path = "/api/generate"
    takes_ids = False
    forces_length = False

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

    def native_body(self, request: PreparedRequest) -> dict[str, Any]:
        """Return the body of a request to ``/api/generate``."""
        options = {"num_predict": request.output_tokens, "temperature": 0}
        prompt = {"model": request.model, "prompt": request.prompt, "raw": True}
        return {**prompt, "options": options, "stream": True}


def _named(models: object) -> list[Mapping[str, Any]]:
    """Return Ollama's entries as model cards."""
    entries = models if isinstance(models, list) else []
    named = (m for m in entries if isinstance(m, Mapping) and isinstance(m.get("name"), str))
    return [{**entry, "id": entry["name"]} for entry in named]


def read(event: dict[str, Any]) -> NativeEvent:
    """Read a line of ``/api/generate``; the counts of the last one are the usage."""
    usage = usage_of(event.get("prompt_eval_count"), event.get("eval_count"))
    text = bool(event.get("response") or event.get("thinking"))
    return NativeEvent(text=text, ends=event[MARK] is True, usage=usage)
