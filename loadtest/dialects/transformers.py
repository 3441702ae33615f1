"""Hugging Face's ``transformers serve``, of OpenAI's API.

Follows its documentation and the schema of its requests: prompts are text, unknown fields are
refused, and ``generation_config`` replaces the model's own settings: with an end token that no
vocabulary has, only ``max_tokens`` ends an answer. The last event always has the usage. Models are
loaded by the requested name, which may be a folder; only models in its cache are listed.
Tested against release 5.23, with continuous batching and without.
"""

import json
from typing import Any, ClassVar

from loadtest.dialects.native_event import fields_of
from loadtest.dialects.openai import OpenAI
from loadtest.dialects.server_probe import ServerProbe

_ENDLESS = json.dumps({"eos_token_id": -1})


class Transformers(OpenAI):
    """transformers serve."""

    name = "transformers"
    takes_ids = False
    loads_unlisted: ClassVar = True

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the paths of its description: only this server has ``/load_model``."""
        paths = fields_of(server.page("/openapi.json").get("paths"))
        return {"/load_model", "/v1/completions", "/v1/responses"} <= paths.keys()

    def exactly(self, output_tokens: int) -> dict[str, Any]:
        """Return a setting with an end token that no vocabulary has; there is no minimum."""
        return {"generation_config": _ENDLESS}
