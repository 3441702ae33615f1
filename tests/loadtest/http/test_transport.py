"""The load tester's own transport: the answers that httpx's gives, stamps, reuse, errors."""

import asyncio
import gzip
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.http.connection import StampedResponse
from servetwin.loadtest.http.exchange import Exchange, run_exchange
from servetwin.loadtest.http.transport import (
    ANSWER,
    StampingTransport,
    httpx_reason,
    open_client,
    posts_to,
)
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.run.client import run_load_test
from servetwin.loadtest.stream.stream_reader import read_stream
from servetwin.workloads.errors import LoadTestError
from tests.support.certificates import own_certificate, server_side
from tests.support.loadtest_server import DONE, ScriptedServer, stream_of, text
from tests.support.mock_load import trace_of
from tests.support.raw_server import (
    CHUNKED,
    HELLO,
    OK,
    Caller,
    Handler,
    numbered,
    raw_server,
    run,
    says,
)


async def post(transport: httpx.AsyncBaseTransport, url: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=transport, timeout=5) as client:
        return await client.post(url, content=b"{}", **more)


@asynccontextmanager
async def own_client() -> AsyncIterator[tuple[httpx.AsyncClient, StampingTransport]]:
    """Yield a client and the transport in it."""
    transport = StampingTransport()
    async with httpx.AsyncClient(transport=transport) as client:
        yield client, transport


ANSWERS: dict[str, tuple[tuple[bytes, ...], bool]] = {
    "length": ((HELLO,), False),
    "cut everywhere": (tuple(bytes([byte]) for byte in HELLO), False),
    "chunked": ((CHUNKED, b"3\r\nabc\r\n", b"2;x=y\r\nde\r\n0\r\n\r\n"), False),
    "trailers": ((CHUNKED + b"3\r\nabc\r\n0\r\nX: y\r\n\r\n",), False),
    "until closed": ((OK + b"\r\nhel", b"lo"), True),
    "HTTP/1.0": ((b"HTTP/1.0 200 OK\r\n\r\nhello",), True),
    "connection: close": ((OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab",), True),
    "204": ((b"HTTP/1.1 204 No Content\r\n\r\n",), False),
    "304": ((b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",), False),
    "500": ((b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nboom",), False),
    "no reason": ((b"HTTP/1.1 429\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",), False),
    "100 before": ((b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO,), False),
    "repeated fields": ((OK + b"A: 1\r\na: 2\r\nContent-Length: 0\r\n\r\n",), False),
    "bare line feeds": ((b"HTTP/1.1 200 OK\nA: b\nContent-Length: 2\n\nab",), False),
    "gzip": ((OK + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"hello", mtime=0)), True),
    "gzip that is none": ((OK + b"Content-Encoding: gzip\r\n\r\n", b"hello"), True),
    "nothing": ((), True),
    "half a head": ((OK + b"Content-",), True),
    "body cut": ((OK + b"Content-Length: 9\r\n\r\nhello",), True),
    "chunks cut": ((CHUNKED + b"3\r\nabc\r\n",), True),
    "not HTTP": ((b"220 mail.example ESMTP\r\n\r\n",), True),
    "bad chunk size": ((CHUNKED + b"zz\r\nabc\r\n",), True),
    "bad length": ((OK + b"Content-Length: many\r\n\r\n",), True),
    "two lengths": ((OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",), True),
}


@pytest.mark.parametrize(("parts", "hangs_up"), ANSWERS.values(), ids=ANSWERS)
def test_the_answers_are_those_of_httpx(parts: tuple[bytes, ...], hangs_up: bool) -> None:
    async def seen(transport: httpx.AsyncBaseTransport, url: str) -> Any:
        try:
            answer = await post(transport, url)
        except httpx.HTTPError as error:
            return type(error)
        fields = [(name.lower(), value) for name, value in answer.headers.raw]
        extensions = answer.extensions["http_version"], answer.reason_phrase
        return answer.status_code, fields, answer.content, extensions

    async def both() -> tuple[Any, Any]:
        async with raw_server(says(*parts, hangs_up=hangs_up)) as server:
            ours = await seen(StampingTransport(), server.url)
            return ours, await seen(httpx.AsyncHTTPTransport(), server.url)

    ours, theirs = run(both())
    assert ours == theirs


def test_the_request_on_the_wire_is_that_of_httpx() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"cd"

    async def sent() -> list[bytes]:
        async with raw_server(says(HELLO)) as server:
            for transport in (StampingTransport(), httpx.AsyncHTTPTransport()):
                await post(transport, server.url, headers={"X-Key": "a"})
            async with httpx.AsyncClient(transport=StampingTransport()) as client:
                await client.post(server.url, content=pieces())
            async with own_client() as (client, transport):
                for way in (transport, None):
                    answer = await posts_to(server.url, client, way)(b"abcd", {"X-Key": "a"})
                    await answer.aread()
            return [request for caller in server.callers for request in caller.requests]

    ours, theirs, streamed, straight, by_client = run(sent())
    assert ours == theirs
    assert straight == by_client
    assert b"\r\nX-Key: a\r\n" in straight
    assert straight.endswith(b"\r\nContent-Length: 4\r\n\r\nabcd")
    assert ours.startswith(b"POST /v1/x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert streamed.endswith(b"\r\nContent-Length: 4\r\n\r\nabcd")
    assert b"Transfer-Encoding" not in streamed


@pytest.mark.parametrize(
    ("handle", "error", "message"),
    [
        (says(hangs_up=True), httpx.RemoteProtocolError, "the connection was closed without"),
        (says(b"SSH-2.0\r\n"), httpx.RemoteProtocolError, "not HTTP/1.1 (Expected HTTP/"),
        (
            says(OK + b"Content-Length: 9\r\n\r\nab", hangs_up=True),
            httpx.RemoteProtocolError,
            "the connection was closed with 7 bytes of the body missing",
        ),
    ],
)
def test_errors_name_the_server(handle: Handler, error: type[Exception], message: str) -> None:
    async def fail() -> tuple[str, int]:
        async with raw_server(handle) as server:
            with pytest.raises(error) as caught:
                await post(StampingTransport(), server.url, timeout=0.2)
            return str(caught.value), server.port

    said, port = run(fail())
    assert said.startswith(f"127.0.0.1:{port}: {message}")


def test_a_reset_connection_is_a_read_error() -> None:
    async def reset(caller: Caller) -> None:
        await caller.ask()
        await caller.say(OK + b"Content-Length: 9\r\n\r\nab")
        plug = caller.writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        caller.writer.transport.abort()

    async def fail() -> None:
        async with raw_server(reset) as server:
            with pytest.raises(httpx.ReadError, match=f"127.0.0.1:{server.port}: Connection reset"):
                await post(StampingTransport(), server.url)

    run(fail())


def test_nobody_there_and_nobody_answering() -> None:
    """A port that is closed; one whose queue of connections is full."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(httpx.ConnectError, match=r"127\.0\.0\.1:\d+: Connection refused"):
        run(post(StampingTransport(), url))
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        crowd = [socket.socket() for _ in range(4)]
        for plug in crowd:
            plug.setblocking(False)
            plug.connect_ex(address)
        with pytest.raises(httpx.ConnectTimeout, match=r"no connection within 0\.2 s"):
            run(post(StampingTransport(), f"http://127.0.0.1:{address[1]}", timeout=0.2))
        for plug in crowd:
            plug.close()


@pytest.mark.parametrize(
    ("url", "headers", "error"),
    [
        ("ftp://h/x", {}, httpx.UnsupportedProtocol),
        ("http://h/x", {"A": "b\r\nC: d"}, httpx.LocalProtocolError),
        ("http://absent.invalid/x", {}, httpx.ConnectError),
    ],
)
def test_what_cannot_be_sent(url: str, headers: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        run(post(StampingTransport(), url, headers=headers))


def test_stamps_lie_between_what_the_server_did_and_never_run_backwards() -> None:
    said_ns: list[int] = []

    async def paced(caller: Caller) -> None:
        await caller.ask()
        await caller.say(CHUNKED)
        for index in range(20):
            said_ns.append(time.perf_counter_ns())
            await caller.say(b"2\r\n%02d\r\n" % index)
            await asyncio.sleep(0.002)
        said_ns.append(time.perf_counter_ns())
        await caller.say(b"0\r\n\r\n")

    async def main() -> tuple[int, StampedResponse]:
        async with raw_server(paced) as server, own_client() as (client, transport):
            sent_ns = time.perf_counter_ns()
            response = await posts_to(server.url, client, transport)(b"{}", None)
            answer: StampedResponse = response.extensions[ANSWER]
            await answer.whole()
            assert await response.aread() == b"".join(data for _, data in answer.reads)
        return sent_ns, answer

    sent_ns, answer = run(main())
    reads = list(answer.reads)
    assert [data for _, data in reads] == [b"%02d" % index for index in range(20)]
    stamps = [sent_ns, *(stamp for stamp, _ in reads)]
    assert stamps == sorted(stamps)
    for index, stamp_ns in enumerate(stamps[1:]):
        assert said_ns[index] <= stamp_ns <= said_ns[index + 1]


def test_sent_is_before_the_connection_is_opened() -> None:
    async def main() -> None:
        accepted_ns: list[int] = []

        async def handle(caller: Caller) -> None:
            accepted_ns.append(time.perf_counter_ns())
            await says(OK + b"Content-Length: 0\r\n\r\n")(caller)

        async with raw_server(handle) as server, own_client() as way:
            exchange = Exchange()
            before_ns = time.perf_counter_ns()
            await run_exchange(posts_to(server.url, *way), b"{}", exchange, 5.0)
        assert exchange.sent_ns
        assert before_ns < exchange.sent_ns < accepted_ns[0]

    run(main())


def test_a_compressed_stream_is_read_with_its_stamps() -> None:
    packer = zlib.compressobj(wbits=31)
    flush = zlib.Z_SYNC_FLUSH
    parts = [packer.compress(text(str(index))) + packer.flush(flush) for index in range(3)]
    parts.append(packer.compress(text("c", "length") + DONE) + packer.flush())
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    head = OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def main() -> Exchange:
        async with raw_server(says(head, *chunks, b"0\r\n\r\n")) as server, own_client() as way:
            exchange = Exchange()
            await run_exchange(posts_to(server.url, *way), b"{}", exchange, 5.0)
        return exchange

    stream = read_stream(run(main()))
    assert stream.failure is None
    assert len(stream.stamps_ns) == 4
    assert stream.stamps_ns.tolist() == sorted(stream.stamps_ns)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return own_certificate(tmp_path_factory.mktemp("tls"))


def over_tls(
    authority: tuple[Path, Path], host: str, transport: StampingTransport
) -> tuple[str, str]:
    context = server_side(*authority)

    async def main() -> tuple[str, str]:
        async with raw_server(numbered, context) as server:
            url = f"https://{host}:{server.port}"
            async with httpx.AsyncClient(transport=transport) as client:
                first = await client.get(url)
                return first.text, (await client.get(url)).text

    return run(main())


def test_tls_with_an_authority_of_our_own(
    authority: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ssl.create_default_context(cafile=str(authority[0]))
    assert over_tls(authority, "localhost", StampingTransport(verify=ours)) == ("1", "2")
    assert over_tls(authority, "127.0.0.1", StampingTransport(verify=False)) == ("1", "2")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority[0]))
    assert over_tls(authority, "localhost", StampingTransport()) == ("1", "2")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_tls_that_cannot_be_trusted(
    authority: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(httpx.ConnectError, match=r"localhost:\d+: TLS: self.signed certificate"):
        over_tls(authority, "localhost", StampingTransport())
    ours = ssl.create_default_context(cafile=str(authority[0]))
    with pytest.raises(httpx.ConnectError, match=r"127\.0\.0\.1:\d+: TLS: IP address mismatch"):
        over_tls(authority, "127.0.0.1", StampingTransport(verify=ours))


def test_tls_where_there_is_none() -> None:
    async def plain(caller: Caller) -> None:
        await caller.reader.read(10)
        await caller.say(b"HTTP/1.1 400 Bad\r\n\r\n")

    async def refused() -> None:
        async with raw_server(plain) as server:
            with pytest.raises(httpx.ConnectError, match=f"127.0.0.1:{server.port}: TLS: "):
                await post(StampingTransport(verify=False), server.url.replace("http", "https"))

    run(refused())


PROXY = "http://proxy.example:3128"
WAYS: dict[str, tuple[dict[str, str], LoadOptions, str, bool, str | None]] = {
    "plain": ({}, LoadOptions(), "http://h/v1", True, None),
    "HTTP/2": ({}, LoadOptions(http2=True), "http://h/v1", True, "HTTP/2"),
    "given": ({}, LoadOptions(proxy=PROXY), "http://h/v1", False, "proxy"),
    "http": ({"http_proxy": PROXY}, LoadOptions(), "http://h/v1", True, "proxy of the environment"),
    "other scheme": ({"http_proxy": PROXY}, LoadOptions(), "https://h/v1", True, None),
    "all": ({"all_proxy": PROXY}, LoadOptions(), "https://h/v1", True, "proxy of the environment"),
    "around": ({"all_proxy": PROXY, "no_proxy": "h"}, LoadOptions(), "http://h/v1", True, None),
    "not trusted": ({"http_proxy": PROXY}, LoadOptions(), "http://h/v1", False, None),
}


@pytest.mark.parametrize(
    ("environment", "options", "url", "trusts", "reason"), WAYS.values(), ids=WAYS
)
def test_which_way_is_taken(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    options: LoadOptions,
    url: str,
    trusts: bool,
    reason: str | None,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert httpx_reason(httpx.URL(url), options, trust_env=trusts) == reason


def test_a_load_test_through_a_proxy() -> None:
    """The scripted server takes whole URLs as well, as a proxy does."""
    endpoint = Endpoint("http://absent.invalid/v1", "mock")
    with ScriptedServer(lambda body: stream_of(3)).running() as server:
        options = LoadOptions(proxy=server.url)
        result = run_load_test(endpoint, trace_of(0.0, 0.01), options=options)
    assert [arrival.path for arrival in server.arrivals] == [endpoint.url] * 2
    assert result.requests["status"].tolist() == ["finished"] * 2
    assert result.meta["client"]["transport"] == "httpx (proxy)"
    assert server.url not in repr(result.scenario)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LoadOptions(proxy="nonsense"), "the proxy cannot be used; give a URL such as"),
        (LoadOptions(http2=True), "HTTP/2 needs the package h2"),
    ],
)
def test_ways_that_cannot_be_taken(options: LoadOptions, message: str) -> None:
    if options.http2 and find_spec("h2"):
        pytest.skip("HTTP/2 can be spoken here")
    with pytest.raises(LoadTestError, match=message):
        open_client(Endpoint("http://h/v1", "m"), options)
