"""Where a redirect leads: a load test follows none, since its latencies would be of two servers."""

import httpx

from servetwin.loadtest.redaction import hide_secrets

_MOST = 300


def redirect_target(response: httpx.Response) -> str:
    """Return the URL to which an answer redirects; empty where it does not.

    Query and password are left out: they may be secrets of the server.
    """
    location = response.headers.get("location")
    if not location or not 300 <= response.status_code < 400:
        return ""
    try:
        target = response.request.url.join(location)
        shown = str(target.copy_with(query=None, fragment=None, userinfo=b""))
    except (httpx.InvalidURL, ValueError):
        shown = location.partition("?")[0]
    return hide_secrets(shown, _MOST)
