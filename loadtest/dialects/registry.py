"""All dialects: found by name, by the server that speaks them, by the events of their streams."""

from typing import Any

from servetwin.loadtest.dialects.dialect import Dialect
from servetwin.loadtest.dialects.native_event import NativeEvent
from servetwin.loadtest.dialects.native_servers import LlamaCpp, Ollama, SGLang, Tgi, Triton
from servetwin.loadtest.dialects.openai_servers import Mlc, OpenAI, TensorRTLLM, Transformers, Vllm
from servetwin.loadtest.dialects.server_probe import ServerProbe
from servetwin.workloads.errors import LoadTestError, did_you_mean

# Ollama comes last: others answer on its pages too.
_KINDS = (OpenAI, Vllm, SGLang, Tgi, LlamaCpp, TensorRTLLM, Triton, Mlc, Transformers, Ollama)
DIALECTS: dict[str, Dialect] = {kind.name: kind() for kind in _KINDS}

_NATIVE = {dialect.mark: dialect for dialect in DIALECTS.values() if dialect.mark}


def dialect_named(name: str) -> Dialect:
    """Return the dialect of a name. Raises ``LoadTestError`` for an unknown one."""
    if name not in DIALECTS:
        hint = did_you_mean(name, DIALECTS, f"there are {', '.join(DIALECTS)}")
        raise LoadTestError(f"--dialect {name}: unknown; {hint}")
    return DIALECTS[name]


def dialect_of(server: ServerProbe) -> Dialect:
    """Return the dialect of a server: by the owner of its models, by its pages, else OpenAI's.

    Raises the ``complaint`` of the server where it has no models either.
    """
    for dialect in DIALECTS.values():
        if server.owner in dialect.owners:
            return dialect
    for dialect in DIALECTS.values():
        if dialect.recognises(server):
            return dialect
    if server.complaint:
        raise server.complaint
    return DIALECTS["openai"]


def read_native(event: dict[str, Any]) -> NativeEvent | None:
    """Read an event of a native stream; None for an event of OpenAI's API or an unknown kind.

    The kind is recognised by the event itself, so a stream is read right even where the dialect of
    the server was not.
    """
    if "choices" in event:
        return None
    return next((_NATIVE[mark].read(event) for mark in _NATIVE if mark in event), None)
