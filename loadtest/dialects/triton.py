"""NVIDIA Triton with its TensorRT-LLM backend: ``generate_stream``.

Follows the documentation of Triton's generate extension and of its TensorRT-LLM backend:
``text_input``, ``max_tokens``, ``stream``. Prompts are text, and no length is forced. The stream
has neither token counts nor usage nor an end mark: an event with text counts as one token, a
connection that closes in order as the end. Models are not listed; ``ensemble`` is the backend's
usual one. Tested against a server that answers as documented, not against Triton.
"""

from typing import Any, ClassVar

from loadtest.dialects.dialect import Api, Dialect, PreparedRequest
from loadtest.dialects.native_event import NativeEvent
from loadtest.dialects.server_probe import ServerProbe

MARK = "text_output"


class Triton(Dialect):
    """Triton."""

    name = "triton"
    apis: ClassVar[tuple[Api, ...]] = ("native",)
    usual_model = "ensemble"

    def recognises(self, server: ServerProbe) -> bool:
        """Recognise the page of its metadata."""
        return server.page("/v2").get("name") == "triton"

    def path(self, api: Api, model: str) -> str:
        """Return the path of the model."""
        return f"/v2/models/{model}/generate_stream"

    def body(self, api: Api, request: PreparedRequest) -> dict[str, Any]:
        """Return the inputs of the backend's ensemble."""
        inputs = {"text_input": request.prompt, "max_tokens": request.output_tokens, "stream": True}
        return {**inputs, "bad_words": "", "stop_words": ""}


def read(event: dict[str, Any]) -> NativeEvent:
    """Read an event of ``generate_stream``; each may be the last."""
    return NativeEvent(text=bool(event[MARK]), ends=True)
