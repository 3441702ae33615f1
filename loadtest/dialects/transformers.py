"""Hugging Face's ``transformers serve``, of OpenAI's API.

Follows its documentation and the schema of its requests: prompts are text, unknown fields are
refused, and ``generation_config`` replaces the model's own settings: with an end token that no
vocabulary has, only ``max_tokens`` ends an answer. The last event always has the usage. Models are
loaded by the name that is asked for, a folder's path included; listed are only those of its cache.
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
        """The paths of its description: nobody else loads models at ``/load_model``."""
        paths = fields_of(server.page("/openapi.json").get("paths"))
        return {"/load_model", "/v1/completions", "/v1/responses"} <= paths.keys()

    def exactly(self, output_tokens: int) -> dict[str, Any]:
        """No minimum: no token is the end."""
        return {"generation_config": _ENDLESS}
