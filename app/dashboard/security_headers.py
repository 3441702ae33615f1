"""Headers on every answer of the dashboard: no other page may frame it, nothing else may run in it.

Scripts, fonts and data come from this server alone. Streamlit's components write their styles into
the page, and the start page holds scripts, which are allowed by their digests.
"""

import base64
import re
from functools import cache
from hashlib import sha256

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servetwin.app.dashboard.start_page import start_page
from servetwin.workloads.program.package import shipped_json

_HEADERS = shipped_json("app/dashboard/security_headers.json")
_INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class SecurityHeaders:
    """Middleware that adds ``security_headers`` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve as the application does, with the headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                MutableHeaders(scope=message).update(security_headers())
            await send(message)

        await self._app(scope, receive, send_with_headers)


@cache
def security_headers() -> dict[str, str]:
    """Return the headers by name."""
    return {**_HEADERS["plain"], "Content-Security-Policy": content_policy(start_page())}


def content_policy(start_page: str) -> str:
    """Return the policy under which ``start_page`` runs its own inline scripts and no others."""
    digests = [
        base64.b64encode(sha256(script.encode()).digest()).decode()
        for script in _INLINE_SCRIPT.findall(start_page)
    ]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    sources = {**_HEADERS["sources"], "script-src": f"'self' {allowed}".rstrip()}
    return "; ".join(f"{kind} {source}" for kind, source in sources.items())
