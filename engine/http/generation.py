"""The two routes that generate: from a request's body to its answer, whole or streamed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from servetwin.engine.core.core_client import CoreClient, CoreOutput, CoreRequest, Ended, Event
from servetwin.engine.core.messages import RequestFailed, TokenEvent
from servetwin.engine.http.answers import DONE, Answer, Dialect, error_chunk, usage
from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.body_parser import BodyParser
from servetwin.engine.http.body_reader import BodyReader
from servetwin.engine.http.client_shares import ClientShares
from servetwin.engine.http.protocol import GenerationBody, GenerationRequest, ModelLimits

_RETRY = {"retry-after": "1"}


def check_ready(core: CoreClient) -> None:
    """Raise ``ApiError`` (503) where the server cannot take a request now."""
    if core.draining:
        raise ApiError(503, "the server is shutting down", code="shutting_down")
    if core.state == "starting":
        again = f"; it is being started again ({core.why_died})" if core.facts else ""
        raise ApiError(503, f"the engine core is starting{again}", None, "starting", _RETRY)
    if core.state != "ready":
        raise ApiError(503, core.why_died, None, core.state, _RETRY)


class Disconnected(Exception):
    """The client has gone away."""


@dataclass(slots=True)
class Output:
    """One answer to a prompt: what the core has sent of it, and how it is worded."""

    source: CoreOutput
    answer: Answer
    tokens: list[TokenEvent] = field(default_factory=list)
    _unread: list[TokenEvent] = field(default_factory=list)

    async def begin(self) -> None:
        """Wait for the core's first word, so that a refusal can still be a status."""
        self._unread = [_token(event) for event in await self.source.take()]

    async def steps(self) -> AsyncIterator[list[TokenEvent]]:
        """Yield the tokens as they come, some at a time."""
        while True:
            fresh, self._unread = self._unread, []
            self.tokens += fresh
            yield fresh
            if fresh[-1].finish_reason:
                return
            self._unread = [_token(event) for event in await self.source.take()]

    async def chunks(self) -> AsyncIterator[str]:
        """Yield the chunks of a stream."""
        yield self.answer.opening()
        async for fresh in self.steps():
            yield "".join(map(self.answer.chunk, fresh))


async def whole(outputs: Sequence[Output]) -> dict[str, Any]:
    """Return the body of an answer that is not streamed."""
    for output in outputs:
        async for _ in output.steps():
            pass
    choices = [output.answer.choice(output.tokens) for output in outputs]
    return outputs[0].answer.whole(choices, usage(map(_counts, outputs)))


async def stream(outputs: Sequence[Output], with_usage: bool) -> AsyncIterator[str]:
    """Yield the chunks of all outputs as they come, then the usage where it is wanted."""
    one = len(outputs) == 1
    async for text in outputs[0].chunks() if one else _merged(outputs):
        yield text
    if with_usage:
        yield outputs[0].answer.usage_chunk(usage(map(_counts, outputs)))
    yield DONE


async def _merged(outputs: Sequence[Output]) -> AsyncIterator[str]:
    """Yield the chunks of several outputs; the first error ends them all."""
    chunks: asyncio.Queue[str | Exception | None] = asyncio.Queue()

    async def read(output: Output) -> None:
        try:
            async for text in output.chunks():
                chunks.put_nowait(text)
            chunks.put_nowait(None)
        except (ApiError, Disconnected) as error:
            chunks.put_nowait(error)

    readers = [asyncio.create_task(read(output)) for output in outputs]
    try:
        left = len(readers)
        while left:
            chunk = await chunks.get()
            if isinstance(chunk, Exception):
                raise chunk
            if chunk is None:
                left -= 1
            else:
                yield chunk
    finally:
        for reader in readers:
            reader.cancel()


def _counts(output: Output) -> tuple[int, int, int]:
    """Return the prompt's tokens, the output's and the cached ones.

    The prompt of several answers is counted with the first.
    """
    prompt = output.source.timing.prompt_tokens
    cached = output.tokens[-1].cached_tokens if prompt else 0
    return prompt, output.answer.output_tokens(output.tokens), cached


def _token(event: Event) -> TokenEvent:
    """Return the event if it is a token.

    Raises ``ApiError`` for a refusal, a failed request or a dead core, ``Disconnected`` without
    a client.
    """
    if isinstance(event, TokenEvent):
        return event
    if isinstance(event, Ended):
        raise Disconnected if event.why == "disconnected" else ApiError(503, event.message)
    if isinstance(event, RequestFailed):
        raise ApiError(500, f"the request failed: {event.reason}", code="request_failed")
    if event.kind in ("queue_full", "too_late", "over_quota"):
        raise ApiError(429, event.reason, code=event.kind, headers={"retry-after": "1"})
    unsupported = event.kind == "unsupported"
    code = "unsupported_parameter" if unsupported else "context_length_exceeded"
    raise ApiError(400, event.reason, code=code)


_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


@dataclass(frozen=True, slots=True)
class GenerationRoute:
    """ASGI endpoint: one ``Dialect`` and the body that belongs to it."""

    core: CoreClient
    reader: BodyReader
    parser: BodyParser
    shares: ClientShares
    dialect: Dialect
    body_type: type[GenerationBody]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a client that goes away takes its request with it."""
        check_ready(self.core)
        request = Request(scope, receive)
        with ExitStack() as opened:
            client = opened.enter_context(self.shares.taken(request.client))
            async with self.reader.received(request, client) as raw:
                wanted = await self.parser.parse(self.body_type, raw, self._limits())
            check_ready(self.core)
            more = sum(params.n for _, params in wanted.prompts) - 1
            opened.enter_context(self.shares.taken(request.client, more))
            outputs = [
                opened.enter_context(self.core.open(self.dialect.id_prefix, *prompt))
                for prompt in wanted.prompts
            ]
            watcher = asyncio.create_task(_watch(receive, outputs))
            opened.callback(watcher.cancel)
            with suppress(Disconnected):
                await self._answer(outputs, wanted, scope, receive, send)

    async def _answer(
        self,
        requests: Sequence[CoreRequest],
        wanted: GenerationRequest,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send the answer once the core has accepted every prompt."""
        request_id = requests[0].request_id
        texts = self.core.token_texts if wanted.logprobs else None
        common = self.dialect, request_id, wanted.model, wanted.return_token_ids
        outputs: list[Output] = []
        for place, request in enumerate(requests):
            for source in request.outputs:
                echo = wanted.echoes[place] if wanted.echoes else None
                outputs.append(Output(source, Answer(*common, len(outputs), texts, echo)))
        for output in outputs:
            await output.begin()
        if wanted.stream:
            await _send_stream(stream(outputs, wanted.include_usage), send)
        else:
            await JSONResponse(await whole(outputs))(scope, receive, send)

    def _limits(self) -> ModelLimits:
        facts = self.core.facts
        longest = min(facts["max_model_len"], facts["kv_tokens"])
        tokenizer = self.core.tokenizer
        adapters = tuple(facts.get("adapters", ()))
        return ModelLimits(facts["model"], facts["vocab_size"], longest, tokenizer, adapters)


async def _watch(receive: Receive, requests: Sequence[CoreRequest]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    for request in requests:
        request.put(Ended("disconnected", "the client has gone away"))


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
