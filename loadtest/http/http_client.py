"""The HTTP client of a load test, with the transport that its options need."""

import urllib.request
from typing import Any

import httpx

from servetwin.loadtest.endpoint import Endpoint, client_settings
from servetwin.loadtest.http.transport import StampingTransport
from servetwin.loadtest.options import LoadOptions
from servetwin.workloads.errors import LoadTestError

KEEPALIVE_S = 2.0
"""Shorter than the 5 s after which common servers close an idle connection, so as not to race."""


def open_client(
    endpoint: Endpoint, options: LoadOptions
) -> tuple[httpx.AsyncClient, StampingTransport | None, str]:
    """Return the client, its stamping transport or None, and the name of its transport.

    The client has no limit on connections and no timeout but ``connect_timeout_s``: the timeout of
    ``LoadOptions`` covers the whole request. Raises ``LoadTestError`` where HTTP/2 is wanted and
    its package is missing, or for a bad proxy.
    """
    settings = client_settings(endpoint.base_url, insecure=endpoint.insecure)
    settings["headers"] |= {"Content-Type": "application/json", "Accept": "text/event-stream"}
    settings["timeout"] = httpx.Timeout(None, connect=options.connect_timeout_s)
    reason = httpx_reason(httpx.URL(endpoint.base_url), options, trust_env=settings["trust_env"])
    if reason:
        return _httpx_client(options, settings), None, f"httpx ({reason})"
    transport = StampingTransport(verify=settings["verify"], keepalive_s=KEEPALIVE_S)
    return httpx.AsyncClient(transport=transport, **settings), transport, "own HTTP/1.1"


def httpx_reason(url: httpx.URL, options: LoadOptions, *, trust_env: bool) -> str | None:
    """Return why ``url`` needs httpx's own transport: a proxy or HTTP/2; None where it does not."""
    if options.http2:
        return "HTTP/2"
    if options.proxy:
        return "proxy"
    proxies = urllib.request.getproxies() if trust_env else {}
    goes_around = urllib.request.proxy_bypass(url.host) if proxies else False
    if not goes_around and (url.scheme in proxies or "all" in proxies):
        return "proxy of the environment"
    return None


def _httpx_client(options: LoadOptions, settings: dict[str, Any]) -> httpx.AsyncClient:
    settings["limits"] = httpx.Limits(keepalive_expiry=KEEPALIVE_S)
    try:
        return httpx.AsyncClient(proxy=options.proxy, http2=options.http2, **settings)
    except ImportError as error:
        raise LoadTestError("HTTP/2 needs the package h2: pip install 'httpx[http2]'") from error
    except (ValueError, httpx.InvalidURL) as error:
        hint = "give a URL such as http://proxy.example:3128"
        raise LoadTestError(f"the proxy cannot be used; {hint}") from error
