"""Options that say how a live endpoint is asked."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from loadtest.endpoint import Endpoint

_PANEL = "Endpoint"


class ApiChoice(StrEnum):
    """Which API is asked: one of OpenAI's, or the server's own."""

    completions = "completions"
    chat = "chat"
    native = "native"


class TooLongChoice(StrEnum):
    """What becomes of requests that are longer than the server's context."""

    drop = "drop"
    clip = "clip"


class PromptChoice(StrEnum):
    """What a prompt is made of."""

    auto = "auto"
    ids = "ids"
    text = "text"


Dialect = Annotated[
    str | None,
    typer.Option(
        help="openai, vllm, sglang, tgi, llamacpp, tensorrt-llm, triton, mlc or ollama; "
        "default what is recognised.",
        rich_help_panel=_PANEL,
    ),
]
Api = Annotated[
    ApiChoice | None,
    typer.Option(help="The API to ask; default the dialect's own.", rich_help_panel=_PANEL),
]
ServedModel = Annotated[
    str | None,
    typer.Option("--model", help="Served model; default the first.", rich_help_panel=_PANEL),
]
PromptKind = Annotated[
    PromptChoice,
    typer.Option("--prompt", help="Token ids (exact lengths) or text.", rich_help_panel=_PANEL),
]
ForceLength = Annotated[
    bool,
    typer.Option(
        "--force-length/--no-force-length",
        help="Ask for the trace's exact output lengths, where the dialect can.",
        rich_help_panel=_PANEL,
    ),
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        help="Environment variable with the API key; default OPENAI_API_KEY.",
        rich_help_panel=_PANEL,
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="'NAME: VALUE'",
        help="Also send this header; repeatable. Secret values are not stored.",
        rich_help_panel=_PANEL,
    ),
]
OnTooLong = Annotated[
    TooLongChoice | None,
    typer.Option(
        help="Requests longer than the server's context: leave them out or shorten them.",
        rich_help_panel=_PANEL,
    ),
]


def asked_how(endpoint: "Endpoint") -> str:
    """How the endpoint will be asked, before anything is sent."""
    prompts = {"ids": "token ids", "text": "text"}[endpoint.prompt]
    length = "forced" if endpoint.force_length else "free"
    return (
        f"endpoint: {endpoint.url}, dialect {endpoint.dialect} ({endpoint.api}), model "
        f"{endpoint.model}, prompts as {prompts}, output length {length}"
    )
