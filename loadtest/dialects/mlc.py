"""MLC LLM's server of OpenAI's API.

Follows MLC LLM's documentation of its REST API: prompts of token ids; the end of a text is ignored
on ``debug_config.ignore_eos``, which the server heeds when started with ``--enable-debug`` and
drops otherwise (answers then end early, and the report counts them). Tested against a server that
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
        """No minimum: the end is ignored instead."""
        return {"debug_config": {"ignore_eos": True}}
