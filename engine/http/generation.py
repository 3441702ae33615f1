"""The two routes that generate: from a request's body to its answer, whole or streamed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from engine.core.core_client import CoreClient, CoreRequest, Ended, Event
from engine.core.messages import RequestFailed, TokenEvent
from engine.http.answers import CHAT, DONE, Answer, Dialect, error_chunk, usage
from engine.http.api_errors import ApiError, unknown_model
from engine.http.health import check_ready
from engine.http.http_settings import HttpSettings
from engine.http.protocol import GenerationBody, parse_body

MAX_BODY_BYTES = 32 << 20
COMPLETION_DEFAULT_MAX_TOKENS = 16

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


@dataclass(frozen=True, slots=True)
class GenerationRoute:
    """ASGI endpoint: one ``Dialect`` and the body that belongs to it."""

    core: CoreClient
    settings: HttpSettings
    dialect: Dialect
    body_type: type[GenerationBody]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a client that goes away takes its request with it."""
        check_ready(self.core)
        body = parse_body(self.body_type, await read_body(Request(scope, receive)))
        self._check_model(body)
        prompt_ids = body.prompt_ids(self.core.facts["vocab_size"])
        params = body.sampling(self._default_max_tokens(len(prompt_ids)))
        with self.core.open(self.dialect.id_prefix, prompt_ids, params) as request:
            watcher = asyncio.create_task(_watch(receive, request))
            try:
                await self._answer(request, body, scope, receive, send)
            except _Disconnected:
                pass  # the client has disconnected
            finally:
                watcher.cancel()

    async def _answer(
        self, request: CoreRequest, body: GenerationBody, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Wait for the core's first word, so that a refusal can still be a status."""
        answer = Answer(
            self.dialect, request.request_id, self.core.facts["model"], body.return_token_ids
        )
        events = await request.take()
        _token(events[0])
        if body.stream:
            with_usage = body.stream_options.include_usage
            await _send_stream(_chunks(request, events, answer, with_usage), send)
        else:
            await JSONResponse(await _whole(request, events, answer))(scope, receive, send)

    def _check_model(self, body: GenerationBody) -> None:
        served = self.core.facts["model"]
        if body.model is not None and body.model != served:
            raise unknown_model(body.model, served)

    def _default_max_tokens(self, prompt_tokens: int) -> int:
        """Return at least 1: the scheduler decides whether the request fits."""
        longest: int = min(self.core.facts["max_model_len"], self.core.facts["kv_tokens"])
        left = longest - prompt_tokens
        return max(1, left if self.dialect is CHAT else min(COMPLETION_DEFAULT_MAX_TOKENS, left))


async def read_body(request: Request) -> bytes:
    """Return the body of a request.

    Raises ``ApiError`` (413) as soon as it is known to be too large.
    """
    declared = request.headers.get("content-length", "")
    body = bytearray()
    if not declared.isdigit() or int(declared) <= MAX_BODY_BYTES:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                break
        else:
            return bytes(body)
    raise ApiError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")


class _Disconnected(Exception):
    """The client has gone away."""


async def _watch(receive: Receive, request: CoreRequest) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    request.put(Ended("disconnected", "the client has gone away"))


def _token(event: Event) -> TokenEvent:
    """Return the event if it is a token.

    Raises ``ApiError`` for a refusal, a failed request or a dead core, ``_Disconnected`` without
    a client.
    """
    if isinstance(event, TokenEvent):
        return event
    if isinstance(event, Ended):
        raise _Disconnected if event.why == "disconnected" else ApiError(503, event.message)
    if isinstance(event, RequestFailed):
        raise ApiError(500, f"the request failed: {event.reason}", code="request_failed")
    if event.kind in ("queue_full", "too_late"):
        raise ApiError(429, event.reason, code=event.kind, headers={"retry-after": "1"})
    raise ApiError(400, event.reason, code="context_length_exceeded")


async def _whole(request: CoreRequest, events: list[Event], answer: Answer) -> dict[str, Any]:
    tokens = [_token(event) for event in events]
    while not tokens[-1].finish_reason:
        tokens += [_token(event) for event in await request.take()]
    return answer.whole(tokens, usage(request.timing.prompt_tokens, tokens))


async def _chunks(
    request: CoreRequest, events: list[Event], answer: Answer, with_usage: bool
) -> AsyncIterator[str]:
    yield answer.opening()
    tokens: list[TokenEvent] = []
    while True:
        fresh = [_token(event) for event in events]
        yield "".join(map(answer.chunk, fresh))
        tokens += fresh
        if fresh[-1].finish_reason:
            break
        events = await request.take()
    if with_usage:
        yield answer.usage_chunk(usage(request.timing.prompt_tokens, tokens))
    yield DONE


async def _send_stream(chunks: AsyncIterator[str], send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
    try:
        async for text in chunks:
            await _send_text(text, send)
    except ApiError as error:
        await _send_text(error_chunk(error.body()), send)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_text(text: str, send: Send) -> None:
    if text:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
