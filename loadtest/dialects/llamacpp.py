"""llama.cpp's server: its native ``/completion``, and OpenAI's API.

Follows the README of llama.cpp's server: prompts of token ids; ``n_predict`` and ``ignore_eos``
force the length. Events hold ``content`` and the ids in ``tokens``; newer servers also count the
tokens so far, including tokens held back until a character is complete. The last event has
``stop`` and the counts; ``timings.cache_n`` are the prompt tokens that were cached. Tested against
a server that answers as documented, not against llama.cpp.
"""

from collections.abc import Mapping
from typing import Any

from loadtest.dialects.dialect import ModelFacts, PreparedRequest
from loadtest.dialects.native_event import NativeEvent, count, fields_of, usage_of
from loadtest.dialects.openai import NativeAndOpenAI
from loadtest.dialects.server_probe import ServerProbe

MARK = "stop"


class LlamaCpp(NativeAndOpenAI):
    """llama.cpp's server."""

    name = "llamacpp"
    owners = frozenset({"llamacpp"})
    native_path = "/completion"
    guesses_vocab = True

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise its name in the headers, or the page of its properties."""
        named = server.headers.get("server", "").startswith("llama.cpp")
        return named or "default_generation_settings" in server.page("/props")

    def facts(self, server: ServerProbe, card: Mapping[str, Any]) -> ModelFacts:
        """Return the vocabulary of the model and the context of one slot."""
        settings = fields_of(server.page("/props").get("default_generation_settings"))
        vocab_size = count(fields_of(card.get("meta")).get("n_vocab"))
        return ModelFacts(vocab_size or None, count(settings.get("n_ctx")) or None)

    def native_body(self, request: PreparedRequest) -> dict[str, Any]:
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

    def exactly(self, output_tokens: int) -> dict[str, Any]:
        """Return the field that ignores the end token; there is no minimum."""
        return {"ignore_eos": True}


def read(event: dict[str, Any]) -> NativeEvent:
    """Read an event of ``/completion``; the counts of the last one are the usage."""
    made = count(event.get("tokens_predicted"))
    if event[MARK] is True:
        cached = fields_of(event.get("timings")).get("cache_n")
        return NativeEvent(
            tokens=0, ends=True, usage=usage_of(event.get("tokens_evaluated"), made, cached)
        )
    ids = event.get("tokens")
    listed = len(ids) if isinstance(ids, list) and ids else None
    return NativeEvent(tokens=listed, made=made, text=bool(event.get("content")))
