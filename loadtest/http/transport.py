"""The load tester's own HTTP/1.1 transport, behind httpx's public interface.

httpx's own pool walks over all its connections on every open and close; at 400 requests/s that is
milliseconds per request, and they would be measured as the server's. Here a request costs the same
however many are in flight, and what comes is stamped before it is parsed.
"""

import asyncio
import os
import socket
import ssl
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

import httpx

from servetwin.loadtest.endpoint import Endpoint, client_settings
from servetwin.loadtest.http.connection import Connection, ConnectionPool, StampedResponse
from servetwin.loadtest.options import LoadOptions
from servetwin.workloads.errors import LoadTestError

# Extension of a response: the ``StampedResponse`` behind it.
ANSWER = "answer"

# Scheme, host, port.
Origin = tuple[str, str, int]

_PORTS = {"http": 80, "https": 443}


class StampingTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 on asyncio protocols: keep-alive, no limit on connections, and stamps.

    ``verify`` is that of httpx (certifi's authorities, or ``SSL_CERT_FILE``). Of httpx's timeouts
    there is ``connect``, for name look-up, connection and TLS together. A request is sent a second
    time, once, when it went out on an idle connection that the server was just closing; ``resent``
    counts these.

    Raises ``httpx.ConnectError``, ``ConnectTimeout``, ``ReadError``, ``RemoteProtocolError``,
    ``LocalProtocolError`` and ``UnsupportedProtocol``; messages about a server name its host and
    port.
    """

    def __init__(self, *, verify: ssl.SSLContext | bool = True, keepalive_s: float = 5.0) -> None:
        self._verify = verify
        self._keepalive_s = keepalive_s
        self._pools: dict[Origin, ConnectionPool] = {}
        self.resent = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response once its head is here."""
        message = _message(request, await request.aread())
        return await self.respond(request, _origin(request.url), message)

    async def respond(
        self, request: httpx.Request, origin: Origin, message: bytes
    ) -> httpx.Response:
        """Send the bytes of a request to ``origin``, and return what httpx is to know of it."""
        answer = await self._send(origin, request, message)
        head = answer.parser.head
        if head is None:
            assert answer.failure
            raise answer.failure
        extensions = {"http_version": head.version, "reason_phrase": head.reason, ANSWER: answer}
        return httpx.Response(
            head.status,
            headers=head.fields,
            stream=answer,
            extensions=extensions,
            request=request,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(pool.aclose() for pool in self._pools.values()))

    async def _send(
        self, origin: Origin, request: httpx.Request, message: bytes
    ) -> StampedResponse:
        pool = self._pools.setdefault(origin, ConnectionPool(self._keepalive_s))
        if idle := pool.take():
            answer = await _send(idle, message)
            if not idle.closed_before_request(answer):
                return answer
            self.resent += 1
        return await _send(await self._connect(origin, pool, request), message)

    async def _connect(
        self, origin: Origin, pool: ConnectionPool, request: httpx.Request
    ) -> Connection:
        scheme, host, port = origin
        timeout_s: float | None = request.extensions.get("timeout", {}).get("connect")
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(_server(origin), pool),
                    host,
                    port,
                    ssl=self._tls if scheme == "https" else None,
                )
        except TimeoutError as error:
            reason = "timed out" if timeout_s is None else f"no connection within {timeout_s:g} s"
            raise httpx.ConnectTimeout(f"{_server(origin)}: {reason}") from error
        except OSError as error:
            raise httpx.ConnectError(f"{_server(origin)}: {_reason(error)}") from error
        return connection

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = httpx.create_ssl_context(verify=self._verify)
        context.set_alpn_protocols(["http/1.1"])
        return context


async def _send(connection: Connection, message: bytes) -> StampedResponse:
    """Send a request and return its answer once its head is here or it has failed."""
    answer = connection.send(message)
    try:
        await answer.begun()
    except asyncio.CancelledError:
        connection.abort()
        raise
    return answer


def _message(request: httpx.Request, body: bytes) -> bytes:
    """Return the bytes of a request; a body in pieces is sent with its length."""
    has_body = not {"content-length", "transfer-encoding"}.isdisjoint(request.headers)
    return _with_length(_head(request), body) if has_body else b"%b\r\n" % _head(request)


def _with_length(head: bytes, body: bytes) -> bytes:
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def _head(request: httpx.Request) -> bytes:
    """Return the request line and the fields, without the length of the body."""
    of_body = (b"content-length", b"transfer-encoding")
    fields = [field for field in request.headers.raw if field[0].lower() not in of_body]
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)]
    head = b"".join([*lines, *(b"%b: %b\r\n" % field for field in fields)])
    if head.count(b"\r") + head.count(b"\n") != 2 * len(fields) + 2:
        raise httpx.LocalProtocolError("a header of the request has a line break in it")
    return head


def _origin(url: httpx.URL) -> Origin:
    if url.scheme not in _PORTS:
        raise httpx.UnsupportedProtocol(f"{url.scheme!r} is neither http nor https")
    return url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]


def _server(origin: Origin) -> str:
    _, host, port = origin
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: OSError) -> str:
    """Return what went wrong, without the addresses and source lines that Python adds."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


# Shorter than the 5 s after which common servers close an idle connection, so as not to race.
KEEPALIVE_S = 2.0


# Posts a body, with headers of this request alone, and returns once the head of the answer came.
Post = Callable[[bytes, Mapping[str, str] | None], Awaitable[httpx.Response]]


def posts_to(url: str, client: httpx.AsyncClient, transport: StampingTransport | None) -> Post:
    """Return what posts to ``url``: straight by ``transport``, else by httpx's client.

    The client takes as long for a request as the transport does, and keeps the cookies of all.
    """

    def request(body: bytes, headers: Mapping[str, str] | None = None) -> httpx.Request:
        return client.build_request("POST", url, content=body, headers=headers)

    if transport is None:
        return lambda body, headers: client.send(request(body, headers), stream=True)
    plain = request(b"{}")
    origin, head = _origin(plain.url), _head(plain)

    def post(body: bytes, headers: Mapping[str, str] | None) -> Awaitable[httpx.Response]:
        own = _head(request(b"{}", headers)) if headers else head
        return transport.respond(plain, origin, _with_length(own, body))

    return post


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
