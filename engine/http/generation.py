"""The two routes that generate: from a request's body to its answer, whole or streamed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from servetwin.engine.core.core_client import CoreClient, CoreRequest, Ended
from servetwin.engine.http.answers import Answer, Dialect, error_chunk
from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.body_parser import BodyParser
from servetwin.engine.http.body_reader import BodyReader
from servetwin.engine.http.echo import EchoedAnswer
from servetwin.engine.http.generation_request import GenerationRequest, ModelLimits
from servetwin.engine.http.health import check_ready
from servetwin.engine.http.outputs import Disconnected, Output, stream, whole
from servetwin.engine.http.protocol import GenerationBody

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
    dialect: Dialect
    body_type: type[GenerationBody]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a client that goes away takes its request with it."""
        check_ready(self.core)
        async with self.reader.received(Request(scope, receive)) as raw:
            asked = await self.parser.parse(self.body_type, raw, self._limits())
        check_ready(self.core)
        with ExitStack() as opened:
            outputs = [opened.enter_context(request) for request in self._open(asked)]
            watcher = asyncio.create_task(_watch(receive, outputs))
            opened.callback(watcher.cancel)
            with suppress(Disconnected):
                await self._answer(outputs, asked, scope, receive, send)

    def _open(self, asked: GenerationRequest) -> list[CoreRequest]:
        return [self.core.open(self.dialect.id_prefix, *prompt) for prompt in asked.prompts]

    async def _answer(
        self,
        requests: Sequence[CoreRequest],
        asked: GenerationRequest,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send the answer once the core has accepted every prompt."""
        request_id = requests[0].request_id
        texts = self.core.token_texts if asked.logprobs else None
        common = self.dialect, request_id, asked.model, asked.return_token_ids
        outputs: list[Output] = []
        for place, request in enumerate(requests):
            for source in request.outputs:
                own = *common, len(outputs), texts
                echo = asked.echoes[place] if asked.echoes else None
                answer = EchoedAnswer(echo, *own) if echo else Answer(*own)
                outputs.append(Output(source, answer))
        for output in outputs:
            await output.begin()
        if asked.stream:
            await _send_stream(stream(outputs, asked.include_usage), send)
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
