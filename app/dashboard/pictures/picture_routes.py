"""What the server has for pictures: the script of their buttons, and plotly.js."""

from pathlib import Path

import plotly  # type: ignore[import-untyped]
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from servetwin.app.dashboard.pictures.picture_buttons import LIBRARY, SCRIPT
from servetwin.app.words import asset

_PLOTLY_JS = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_JAVASCRIPT = "text/javascript"


def picture_routes() -> list[Route]:
    """Return the routes."""
    return [Route(f"/{SCRIPT}", _script), Route(f"/{LIBRARY}", _library)]


def _script(_: Request) -> Response:
    return Response(asset("recoloured.js") + asset("pictures.js"), media_type=_JAVASCRIPT)


def _library(_: Request) -> Response:
    return FileResponse(_PLOTLY_JS, media_type=_JAVASCRIPT)
