"""vLLM's server of OpenAI's API.

Follows vLLM's documentation of its OpenAI-compatible server: prompts of token ids, ``min_tokens``,
``ignore_eos``, and usage with every event (``continuous_usage_stats``), which says how many tokens
an event holds. Tested against a server that answers as documented, not against vLLM.
"""

from typing import ClassVar

from loadtest.dialects.openai import OpenAI
from loadtest.dialects.server_probe import ServerProbe


class Vllm(OpenAI):
    """vLLM."""

    name = "vllm"
    owners = frozenset({"vllm"})
    guesses_vocab = True
    stream_options: ClassVar = {"include_usage": True, "continuous_usage_stats": True}

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise its version, and model cards with permissions."""
        versioned = isinstance(server.page("/version").get("version"), str)
        return versioned and any("permission" in card for card in server.models)
