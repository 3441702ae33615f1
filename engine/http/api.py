"""The OpenAI-compatible HTTP API over a core."""

import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from servetwin.engine.core.core_client import CoreClient
from servetwin.engine.http import api_errors
from servetwin.engine.http.answers import CHAT, COMPLETION
from servetwin.engine.http.body_parser import BodyParser
from servetwin.engine.http.body_reader import BodyReader
from servetwin.engine.http.client_shares import ClientShares
from servetwin.engine.http.gatekeeper import Gatekeeper
from servetwin.engine.http.generation import GenerationRoute, check_ready
from servetwin.engine.http.http_settings import HttpSettings
from servetwin.engine.http.protocol import ChatBody, CompletionBody

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def create_app(core: CoreClient, settings: HttpSettings) -> Starlette:
    """Return the ASGI application over ``core``."""

    reader, shares = BodyReader(settings.max_body_bytes), ClientShares(settings.client_limit())
    parts = core, reader, BodyParser(), shares
    completions = GenerationRoute(*parts, COMPLETION, CompletionBody)
    chat = GenerationRoute(*parts, CHAT, ChatBody)
    return Starlette(
        routes=[
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            *_routes_of_facts(core),
        ],
        exception_handlers={
            api_errors.ApiError: api_errors.answer_api_error,
            HTTPException: api_errors.answer_http_error,
            ClientDisconnect: api_errors.answer_disconnect,
            Exception: api_errors.answer_bug,
        },
        middleware=[
            Middleware(Gatekeeper, settings=settings),
            Middleware(
                CORSMiddleware,
                allow_origins=settings.allow_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                max_age=600,
            ),
        ],
    )


def _routes_of_facts(core: CoreClient) -> list[Route]:
    """Return the routes that tell of the model and the server, and compute nothing."""
    created = int(time.time())

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": _model_cards(core, created)})

    async def model(request: Request) -> Response:
        cards = {card["id"]: card for card in _model_cards(core, created)}
        name = request.path_params["name"]
        if name not in cards:
            raise api_errors.unknown_model(name, list(cards))
        return JSONResponse(cards[name])

    async def health(request: Request) -> Response:
        try:
            check_ready(core)
        except api_errors.ApiError as error:
            body = {"status": error.code, **error.body()}
            return JSONResponse(body, error.status, headers=error.headers)
        return JSONResponse({"status": "ready"})

    async def metrics(request: Request) -> Response:
        return Response(core.metrics.exposition(), media_type=PROMETHEUS_TEXT)

    async def engine(request: Request) -> Response:
        check_ready(core)
        return JSONResponse(core.facts)

    return [
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/servetwin/engine", engine),
    ]


def _model_cards(core: CoreClient, created: int) -> list[dict[str, Any]]:
    """Return the model, then its adapters."""
    if not core.facts:
        check_ready(core)
    card = {
        "object": "model",
        "created": created,
        "owned_by": "servetwin",
        "max_model_len": core.facts["max_model_len"],
        "vocab_size": core.facts["vocab_size"],
    }
    model = core.facts["model"]
    adapters = [{"id": name, **card, "parent": model} for name in core.facts.get("adapters", ())]
    return [{"id": model, **card}, *adapters]
