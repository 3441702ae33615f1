"""The OpenAI-compatible HTTP API over a core."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.core.core_client import CoreClient
from engine.http import api_errors
from engine.http.answers import CHAT, COMPLETION
from engine.http.generation import GenerationRoute, check_open
from engine.http.protocol import ChatBody, CompletionBody

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def create_app(core: CoreClient, facts: Mapping[str, Any]) -> Starlette:
    """Return the ASGI application over ``core``; ``facts`` are in the core's ``Ready`` message."""
    model = {
        "id": facts["model"],
        "object": "model",
        "created": int(time.time()),
        "owned_by": "servetwin",
        "max_model_len": facts["max_model_len"],
        "vocab_size": facts["vocab_size"],
    }

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def health(request: Request) -> Response:
        check_open(core)
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        return Response(core.metrics.exposition(), media_type=PROMETHEUS_TEXT)

    async def engine(request: Request) -> Response:
        return JSONResponse(facts)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        core.attach()
        yield
        core.detach()

    completions = GenerationRoute(core, facts, COMPLETION, CompletionBody)
    chat = GenerationRoute(core, facts, CHAT, ChatBody)
    return Starlette(
        routes=[
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/metrics", metrics),
            Route("/servetwin/engine", engine),
        ],
        exception_handlers={
            api_errors.ApiError: api_errors.answer_api_error,
            HTTPException: api_errors.answer_http_error,
            ClientDisconnect: api_errors.answer_disconnect,
            Exception: api_errors.answer_bug,
        },
        lifespan=lifespan,
    )
