"""llama.cpp's server: its native ``/completion``, and OpenAI's API.

Follows the README of llama.cpp's server: prompts of token ids; ``n_predict`` and ``ignore_eos``
force the length. Events hold ``content`` and the ids in ``tokens``; newer servers also count what
was made so far, which includes tokens held back until a character is whole. The last event has
``stop`` and the counts; ``timings.cache_n`` are the prompt tokens that were cached. Tested against
a server that answers as documented, not against llama.cpp.
"""

from collections.abc import Mapping
from typing import Any

from loadtest.dialects.dialect import Api, ModelFacts, PreparedRequest
from loadtest.dialects.native_event import NativeEvent, count, fields_of, usage_of
from loadtest.dialects.openai import OpenAI
from loadtest.dialects.server_probe import ServerProbe

MARK = "stop"


class LlamaCpp(OpenAI):
    """llama.cpp's server."""

    name = "llamacpp"
    owners = frozenset({"llamacpp"})
    apis = ("native", "completions", "chat")
    guesses_vocab = True

    def recognises(self, server: ServerProbe) -> bool:
        """Its name in the headers, or the page of its properties."""
        named = server.headers.get("server", "").startswith("llama.cpp")
        return named or "default_generation_settings" in server.page("/props")

    def facts(self, server: ServerProbe, card: Mapping[str, Any]) -> ModelFacts:
        """The vocabulary of the model and the context of one slot."""
        settings = fields_of(server.page("/props").get("default_generation_settings"))
        vocab_size = count(fields_of(card.get("meta")).get("n_vocab"))
        return ModelFacts(vocab_size or None, count(settings.get("n_ctx")) or None)

    def path(self, api: Api, model: str) -> str:
        """Native or OpenAI's."""
        return "/completion" if api == "native" else super().path(api, model)

    def body(self, api: Api, ask: PreparedRequest) -> dict[str, Any]:
        """Native or OpenAI's."""
        if api != "native":
            return super().body(api, ask)
        return {
            "prompt": ask.prompt,
            "n_predict": ask.output_tokens,
            **(self.exactly(ask.output_tokens) if ask.force_length else {}),
            "temperature": 0,
            "cache_prompt": True,
            "return_tokens": True,
            "stream": True,
        }

    def exactly(self, output_tokens: int) -> dict[str, Any]:
        """No minimum: the end is ignored instead."""
        return {"ignore_eos": True}


def read(event: dict[str, Any]) -> NativeEvent:
    """An event of ``/completion``. The counts of the last one are its usage."""
    made = count(event.get("tokens_predicted"))
    if event[MARK] is True:
        cached = fields_of(event.get("timings")).get("cache_n")
        return NativeEvent(
            tokens=0, ends=True, usage=usage_of(event.get("tokens_evaluated"), made, cached)
        )
    ids = event.get("tokens")
    listed = len(ids) if isinstance(ids, list) and ids else None
    return NativeEvent(tokens=listed, made=made, text=bool(event.get("content")))
