"""Errors of the HTTP API, in OpenAI's shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}


@dataclass(eq=False)
class ApiError(Exception):
    """An answer other than 200; ``param`` names the field that was wrong."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] | None = None

    def body(self) -> dict[str, object]:
        """Return the JSON that OpenAI's clients expect."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        fields = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": fields}


def wrong_field(name: str, what: str, code: str | None = None) -> ApiError:
    """Return the answer to a body with a wrong field."""
    return ApiError(400, f"{name}: {what}", name, code)


def unknown_model(name: str, served: Sequence[str]) -> ApiError:
    """Return the answer to a request for a model that is not served here."""
    names = " and ".join(map(repr, served))
    message = f"model: {name!r} is not served here; {names} {'is' if len(served) == 1 else 'are'}"
    return ApiError(404, message, param="model", code="model_not_found")


def answer_api_error(request: Request, error: Exception) -> Response:
    """Handle ``ApiError`` for Starlette."""
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, headers=error.headers)


def answer_http_error(request: Request, error: Exception) -> Response:
    """Handle Starlette's own errors: unknown route, wrong method."""
    assert isinstance(error, HTTPException)
    reason = HTTPStatus(error.status_code).phrase.lower()
    message = f"{request.method} {request.url.path}: {reason}"
    return answer_api_error(request, ApiError(error.status_code, message, headers=error.headers))


def answer_disconnect(request: Request, error: Exception) -> Response:
    """Handle a client that disconnected before its request was complete."""
    return Response(status_code=499)


def answer_bug(request: Request, error: Exception) -> Response:
    """Handle every other exception for Starlette; the server logs the traceback."""
    return answer_api_error(request, ApiError(500, "internal server error"))
