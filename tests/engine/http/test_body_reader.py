"""Bodies that are too large or too slow get an answer that their client can read."""

import time
from collections.abc import Iterator

import pytest

from servetwin.engine.http import body_reader
from servetwin.engine.http.client_shares import CLIENT_LARGE_BODIES, LARGE_BODIES
from servetwin.engine.http.http_settings import HttpSettings
from tests.support.live_server import COMPLETIONS, CONFIG, LiveServer, with_prompt
from tests.support.raw_client import connect, head, post_bytes, read_all

LIMIT = 100_000
MESSAGE = "the body is larger than 0.0953674 MiB (--max-body)"


@pytest.fixture(scope="module")
def small() -> Iterator[LiveServer]:
    settings = HttpSettings(max_restarts=0, max_body_bytes=LIMIT)
    with LiveServer(CONFIG, settings=settings) as live:
        yield live


@pytest.mark.parametrize("size", [LIMIT + 1, 20_000_000])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_that_is_too_large(small: LiveServer, size: int, declared: bool) -> None:
    chunks = (b" " * min(50_000, size - at) for at in range(0, size, 50_000))
    response = small.client.post(COMPLETIONS, content=b" " * size if declared else chunks)
    assert response.status_code == 413
    error = response.json()["error"]
    assert (error["message"], error["code"]) == (MESSAGE, "body_too_large")
    assert response.headers["connection"] == "close"


def test_the_largest_body_is_read(small: LiveServer) -> None:
    body = b'{"prompt":"A","max_tokens":1}'.ljust(LIMIT)
    assert small.client.post(COMPLETIONS, content=body).json()["choices"][0]["text"] == "B"


def test_a_client_that_asks_before_it_sends_is_answered_at_once(small: LiveServer) -> None:
    with connect(small) as connection:
        connection.sendall(head(10**12, COMPLETIONS, "Expect: 100-continue"))
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_come(small: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_reader, "RECEIVE_LIMIT_S", 0.2)
    with connect(small) as connection:
        connection.sendall(head(50) + b'{"prompt"')
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 0.2 s" in answer


@pytest.mark.parametrize(("clients", "held"), [(1, CLIENT_LARGE_BODIES), (2, LARGE_BODIES)])
def test_only_so_many_large_bodies_are_held(
    small: LiveServer, monkeypatch: pytest.MonkeyPatch, clients: int, held: int
) -> None:
    monkeypatch.setattr(body_reader, "RECEIVE_LIMIT_S", 1.5)
    begun = [connect(small, f"127.0.0.{2 + n % clients}") for n in range(held)]
    for connection in begun:
        connection.sendall(head(90_000) + b" " * 80_000)
    time.sleep(0.3)
    if clients == 1:
        with connect(small, "127.0.0.9") as other:
            other.sendall(head(90_000) + b" " * 90_000)
            assert other.recv(100).startswith(b"HTTP/1.1 400 ")
    with connect(small, "127.0.0.2") as last:
        last.sendall(head(90_000) + b" " * 90_000)
        assert small.client.post(COMPLETIONS, json=with_prompt()).status_code == 200
        last.settimeout(0.3)
        with pytest.raises(TimeoutError):
            last.recv(1)
        last.settimeout(20)
        for connection in begun:
            assert read_all(connection).startswith(b"HTTP/1.1 408 ")
            connection.close()
        assert last.recv(100).startswith(b"HTTP/1.1 400 ")  # after them its turn came


def test_one_body_after_another_on_a_connection(small: LiveServer) -> None:
    with connect(small) as connection:
        connection.sendall(post_bytes(with_prompt(max_tokens=1)) * 3)
        found = b""
        while found.count(b"200 OK") < 3 or not found.endswith(b"}"):
            found += connection.recv(1 << 16)
    assert found.count(b'"text":"B"') == 3
