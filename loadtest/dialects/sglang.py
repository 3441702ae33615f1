"""SGLang: its native ``/generate``, and OpenAI's API.

Follows SGLang's documentation of its native API and sampling parameters: ``input_ids`` or ``text``;
``min_new_tokens`` and ``ignore_eos`` force the length. The stream repeats the whole text in every
event, with ``meta_info.completion_tokens`` made so far; their differences are counted, so that it
does not matter how many tokens an event holds, nor whether the text is repeated. A request that the
server gives up ends with the finish reason ``abort``. Tested against a server that answers as
documented, not against SGLang.
"""

from typing import Any

from loadtest.dialects.dialect import Api, PreparedRequest
from loadtest.dialects.native_event import NativeEvent, count, fields_of, usage_of
from loadtest.dialects.openai import OpenAI
from loadtest.dialects.server_probe import ServerProbe

MARK = "meta_info"


class SGLang(OpenAI):
    """SGLang."""

    name = "sglang"
    owners = frozenset({"sglang"})
    apis = ("native", "completions", "chat")
    guesses_vocab = True

    def recognises(self, server: ServerProbe) -> bool:
        """The page about the model, by its older or newer name."""
        pages = (server.page("/get_model_info"), server.page("/model_info"))
        return any("model_path" in page and "is_generation" in page for page in pages)

    def path(self, api: Api, model: str) -> str:
        """Native or OpenAI's."""
        return "/generate" if api == "native" else super().path(api, model)

    def body(self, api: Api, ask: PreparedRequest) -> dict[str, Any]:
        """Native or OpenAI's."""
        if api != "native":
            return super().body(api, ask)
        sampling: dict[str, Any] = {"temperature": 0, "max_new_tokens": ask.output_tokens}
        if ask.force_length:
            sampling |= {"min_new_tokens": ask.output_tokens, "ignore_eos": True}
        field = "text" if isinstance(ask.prompt, str) else "input_ids"
        return {field: ask.prompt, "sampling_params": sampling, "stream": True}


def read(event: dict[str, Any]) -> NativeEvent:
    """An event of ``/generate``."""
    told = fields_of(event[MARK])
    reason = fields_of(told.get("finish_reason"))
    made = count(told.get("completion_tokens"))
    return NativeEvent(
        made=made,
        text=bool(event.get("text")),
        ends=told.get("finish_reason") is not None,
        usage=usage_of(told.get("prompt_tokens"), made, told.get("cached_tokens")),
        response_id=str(told.get("id") or ""),
        error=str(reason.get("message", "aborted")) if reason.get("type") == "abort" else None,
    )
