"""MLC LLM's server of OpenAI's API.

Follows MLC LLM's documentation of its REST API: prompts of token ids; the end token is ignored
with ``debug_config.ignore_eos``, which takes effect when the server runs with ``--enable-debug``
(without it answers end early, and the report counts them). Tested against a server that
answers as documented, not against MLC LLM.
"""

from typing import Any

from loadtest.dialects.openai import OpenAI


class Mlc(OpenAI):
    """MLC LLM."""

    name = "mlc"
    owners = frozenset({"MLC-LLM"})
    guesses_vocab = True

    def exactly(self, output_tokens: int) -> dict[str, Any]:
        """Return the field that ignores the end token; there is no minimum."""
        return {"debug_config": {"ignore_eos": True}}
