"""What a server says about itself: its list of models and pages, and why they are missing."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from servetwin.loadtest.dialects.server_probe import ServerProbe
from servetwin.loadtest.dialects.servers import dialect_of
from servetwin.loadtest.endpoint import probe
from servetwin.workloads.errors import LoadTestError, Unreachable
from tests.support.dialect_servers import Kind, kinds, models, running, server_with

TRY = "give the URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"


def test_a_web_page() -> None:
    with pytest.raises(LoadTestError) as caught:
        dialect_of(server_with({"/v1/models": "<html>Sign in</html>"}))
    assert str(caught.value) == (
        f"GET http://h/v1/models: answered with a web page, not with JSON; {TRY}"
    )


def test_a_path_too_many() -> None:
    with running(kinds()["vllm"]) as url:
        with pytest.raises(LoadTestError) as caught:
            probe(f"{url}/llm")
        assert str(caught.value) == (
            f"GET {url}/llm/v1/models: answered 404; {TRY}; there is one at {url}/v1"
        )


def test_only_the_first_models_are_listed() -> None:
    pages = {"/v1/models": {"data": [{"id": f"m{index}"} for index in range(14)]}}
    with running(Kind(pages)) as url, pytest.raises(LoadTestError) as caught:
        probe(url, model="gpt")
    assert str(caught.value).endswith("it serves m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 4 more")


def test_tls_where_there_is_none() -> None:
    with running(kinds()["vllm"]) as url, pytest.raises(Unreachable) as caught:
        probe(url.replace("http:", "https:"))
    assert str(caught.value).endswith("it does not speak TLS there; try http://")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_a_server_that_never_answers(listener: socket.socket) -> None:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(Unreachable) as caught:
        probe(url, timeout_s=0.1)
    assert str(caught.value) == (
        f"GET {url}/v1/models: no answer within 0.1 s; it takes connections and stays silent: "
        "is its model still loading?"
    )


ERRORS: dict[str, tuple[httpx.HTTPError, str]] = {
    "certificate": (
        httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"),
        "not trusted: name its CA in SSL_CERT_FILE, or give --insecure",
    ),
    "handshake": (
        httpx.ConnectError("[SSL: TLSV1_ALERT] alert"),
        "the TLS handshake failed; is this the server's TLS port?",
    ),
    "plain HTTP to TLS": (
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        "it hung up without an answer; does it want https://?",
    ),
    "no such host": (
        httpx.ConnectError("[Errno -2] Name or service not known"),
        f"is the server running? {TRY}",
    ),
}


@pytest.mark.parametrize(("error", "advice"), ERRORS.values(), ids=ERRORS)
def test_what_to_try_when_nothing_answers(error: httpx.HTTPError, advice: str) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(Unreachable) as caught:
        ServerProbe("http://h", httpx.Client(transport=httpx.MockTransport(fail)))
    assert str(caught.value) == f"GET http://h/v1/models: {error}; {advice}"


def test_pages_that_fail_are_no_pages() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json=models("us")["/v1/models"])
        raise httpx.ReadTimeout("slow")

    server = ServerProbe("http://h", httpx.Client(transport=httpx.MockTransport(answer)))
    assert dialect_of(server).name == "openai"
