"""Hugging Face's text-generation-inference: its native ``/generate_stream``, and OpenAI's API.

Follows TGI's documentation and published schema: prompts are text, and nothing forces a length
beyond ``max_new_tokens``. Each event holds one token, special ones included; the last has
``details`` with the counts. Tested against a server that answers as documented, not against TGI.
"""

from collections.abc import Mapping
from typing import Any

from loadtest.dialects.dialect import ModelFacts, PreparedRequest
from loadtest.dialects.native_event import NativeEvent, count, fields_of, usage_of
from loadtest.dialects.openai import NativeAndOpenAI
from loadtest.dialects.server_probe import ServerProbe

MARK = "token"


class Tgi(NativeAndOpenAI):
    """text-generation-inference."""

    name = "tgi"
    native_path = "/generate_stream"
    takes_ids = False
    forces_length = False

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

    def native_body(self, request: PreparedRequest) -> dict[str, Any]:
        """Return the body of a request to ``/generate_stream``."""
        parameters = {"max_new_tokens": request.output_tokens, "do_sample": False, "details": True}
        return {"inputs": request.prompt, "parameters": parameters}


def read(event: dict[str, Any]) -> NativeEvent:
    """Read an event of ``/generate_stream``."""
    details = fields_of(event.get("details"))
    usage = usage_of(details.get("input_length"), details.get("generated_tokens"))
    return NativeEvent(tokens=1, ends=event.get("generated_text") is not None, usage=usage)
