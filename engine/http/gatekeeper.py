"""Who may call the API: not a web page that nobody named, and no client without the key."""

import hmac
import re

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.http_settings import HttpSettings
from servetwin.workloads.program.loopback import is_loopback

# Content types that a page may send anywhere without asking first.
_OF_FORMS = ("text/plain", "multipart/form-data")
_PORT = re.compile(r":\d*$")


class Gatekeeper:
    """ASGI middleware that refuses a request before its body is read."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._origins = settings.allow_origins
        self._key = settings.api_key
        self._is_local = is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer why not."""
        error = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        app = JSONResponse(error.body(), error.status) if error else self._app
        await app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> ApiError | None:
        host = _PORT.sub("", headers.get("host", ""))
        if self._is_local and not is_loopback(host):
            # A name that a web page has made lead to this machine (DNS rebinding).
            return ApiError(403, f"host: {host!r} is not this machine; --host listens on others")
        origin = headers.get("origin")
        allowed = "*" in self._origins or origin in self._origins
        if origin and not allowed and scope["method"] == "POST":
            return ApiError(403, f"origin: {origin!r} may not call; --allow-origin names who may")
        if headers.get("content-type", "").partition(";")[0].strip().lower() in _OF_FORMS:
            return ApiError(415, "content-type: must be application/json")
        sent = headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self._key is None or scope["path"] == "/health" or scope["method"] == "OPTIONS":
            return None
        if not hmac.compare_digest(sent, self._key.encode()):
            return ApiError(401, "authorization: not the server's key", code="invalid_api_key")
        return None
