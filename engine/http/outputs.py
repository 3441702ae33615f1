"""The outputs of one HTTP request as the core sends them: whole, or merged into one stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from servetwin.engine.core.core_client import CoreOutput, Ended, Event
from servetwin.engine.core.messages import RequestFailed, TokenEvent
from servetwin.engine.http.answers import DONE, Answer, usage
from servetwin.engine.http.api_errors import ApiError


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
    return outputs[0].answer.whole(choices, _usage(outputs))


async def stream(outputs: Sequence[Output], with_usage: bool) -> AsyncIterator[str]:
    """Yield the chunks of all outputs as they come, then the usage where it is wanted."""
    one = len(outputs) == 1
    async for text in outputs[0].chunks() if one else _merged(outputs):
        yield text
    if with_usage:
        yield outputs[0].answer.usage_chunk(_usage(outputs))
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


def _usage(outputs: Sequence[Output]) -> dict[str, Any]:
    return usage(map(_counts, outputs))


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
    if event.kind in ("queue_full", "too_late"):
        raise ApiError(429, event.reason, code=event.kind, headers={"retry-after": "1"})
    unsupported = event.kind == "unsupported"
    code = "unsupported_parameter" if unsupported else "context_length_exceeded"
    raise ApiError(400, event.reason, code=code)
