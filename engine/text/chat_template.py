"""Chats as prompts: the model's own jinja template in a sandbox, or a plain one."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from servetwin.engine.text.tokenizer import Chat, ChatError, Message
from servetwin.workloads.errors import EngineError

if TYPE_CHECKING:
    from jinja2 import Template


def plain_chat(chat: Chat) -> str:
    """Return the messages as lines that begin with the role, for a model without a template."""
    turns = [f"{message['role']}: {_text(message)}\n" for message in chat.messages]
    return "".join(turns) + "assistant:"


def _text(message: Message) -> str:
    calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
    return (message.get("content") or "") + calls


class ChatTemplate:
    """The template of a checkpoint, with the functions that transformers gives its templates.

    ``tokens`` are the special tokens by name (``bos_token``); ``where`` names the file in errors.
    Raises ``EngineError`` for what is no template.
    """

    def __init__(self, source: str, tokens: Mapping[str, str], where: str) -> None:
        self._tokens = dict(tokens)
        self._template = _compiled(source, where)

    def render(self, chat: Chat) -> str:
        """Return the prompt. Raises ``ChatError`` where the template refuses the chat or fails."""
        try:
            return self._template.render(
                **{
                    **self._tokens,
                    **chat.variables,
                    "messages": [_with_arguments(message) for message in chat.messages],
                    "tools": chat.tools or None,
                    "documents": None,
                    "add_generation_prompt": True,
                }
            )
        except Exception as error:  # whatever the template's own code may raise
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ChatError(f"the model's chat template refuses them: {reason[:300]}") from None


def _with_arguments(message: Message) -> Message:
    """Return the message with the arguments of its calls as objects: templates dump them."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _compiled(source: str, where: str) -> "Template":
    from jinja2 import TemplateSyntaxError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks text of an assistant, for training: its body stays."""

        tags = {"generation"}  # noqa: RUF012, jinja2 wants a set of the class

        def parse(self, parser: Parser) -> Sequence[nodes.Node]:  # type: ignore[override]
            """Return the statements up to the end of the tag."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise EngineError(f"{where}: line {error.lineno} is no jinja2: {error.message}") from None


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Dump without jinja2's own escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise ChatError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)
