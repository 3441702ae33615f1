"""SGLang: its native ``/generate``, and OpenAI's API.

Follows SGLang's documentation of its native API and sampling parameters: ``input_ids`` or ``text``;
``min_new_tokens`` and ``ignore_eos`` force the length. The stream repeats the whole text in every
event, with ``meta_info.completion_tokens`` made so far; their differences are counted, so that it
does not matter how many tokens an event holds, nor whether the text is repeated. A request that the
server gives up ends with the finish reason ``abort``. Tested against a server that answers as
documented, not against SGLang.
"""

from typing import Any

from loadtest.dialects.dialect import PreparedRequest
from loadtest.dialects.native_event import NativeEvent, count, fields_of, usage_of
from loadtest.dialects.openai import NativeAndOpenAI
from loadtest.dialects.server_probe import ServerProbe

MARK = "meta_info"


class SGLang(NativeAndOpenAI):
    """SGLang."""

    name = "sglang"
    owners = frozenset({"sglang"})
    native_path = "/generate"
    guesses_vocab = True

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the page about the model, by its older or newer name."""
        pages = (server.page("/get_model_info"), server.page("/model_info"))
        return any("model_path" in page and "is_generation" in page for page in pages)

    def native_body(self, request: PreparedRequest) -> dict[str, Any]:
        """Return the body of a request to ``/generate``."""
        sampling: dict[str, Any] = {"temperature": 0, "max_new_tokens": request.output_tokens}
        if request.force_length:
            sampling |= {"min_new_tokens": request.output_tokens, "ignore_eos": True}
        field = "text" if isinstance(request.prompt, str) else "input_ids"
        return {field: request.prompt, "sampling_params": sampling, "stream": True}


def read(event: dict[str, Any]) -> NativeEvent:
    """Read an event of ``/generate``."""
    meta = fields_of(event[MARK])
    reason = fields_of(meta.get("finish_reason"))
    made = count(meta.get("completion_tokens"))
    return NativeEvent(
        made=made,
        text=bool(event.get("text")),
        ends=meta.get("finish_reason") is not None,
        usage=usage_of(meta.get("prompt_tokens"), made, meta.get("cached_tokens")),
        response_id=str(meta.get("id") or ""),
        error=str(reason.get("message", "aborted")) if reason.get("type") == "abort" else None,
    )
