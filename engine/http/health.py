"""What ``/health`` says: whether the server takes requests, and if not, why."""

from starlette.responses import JSONResponse, Response

from servetwin.engine.core.core_client import CoreClient
from servetwin.engine.http.api_errors import ApiError

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


def health_answer(core: CoreClient) -> Response:
    """Return 200 with the status ``ready``, or 503 with another one and the error that says why."""
    try:
        check_ready(core)
    except ApiError as error:
        return JSONResponse({"status": error.code, **error.body()}, 503, headers=error.headers)
    return JSONResponse({"status": "ready"})
