"""Clients that send headers slowly, or nothing, or do not read, are let go; idle ones are not."""

import socket
from collections.abc import Iterator

import pytest

from servetwin.engine.http import guarded_protocol
from servetwin.policies.config import PolicyConfig
from tests.support.live_server import CONFIG, LiveServer, wait_until, with_prompt
from tests.support.raw_client import connect, post_bytes, read_all


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    monkeypatch.setattr(guarded_protocol, "HEADERS_LIMIT_S", 0.2)
    monkeypatch.setattr(guarded_protocol, "FIRST_REQUEST_LIMIT_S", 0.4)
    with LiveServer(CONFIG) as live:
        yield live


@pytest.mark.parametrize("sent", [b"", b"POST /v1/compl", b"GET /health HTTP/1.1\r\nA: b\r\n"])
def test_a_request_that_does_not_come_about(hasty: LiveServer, sent: bytes) -> None:
    with connect(hasty) as connection:
        connection.sendall(sent)
        connection.settimeout(3)
        assert read_all(connection) == b""


def test_one_byte_at_a_time_does_not_extend_the_limit(hasty: LiveServer) -> None:
    with connect(hasty) as connection:
        connection.settimeout(0.05)
        assert bytes_taken(connection, b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 100) < 20


def bytes_taken(connection: socket.socket, slowly: bytes) -> int:
    """How many bytes, one each receive timeout, the server takes before it closes."""
    for sent, byte in enumerate(slowly):
        try:
            connection.sendall(bytes([byte]))
            assert connection.recv(1) == b""
        except TimeoutError:
            continue
        except OSError:
            pass
        return sent
    return len(slowly)


def test_the_second_request_of_a_connection_has_its_own_limit(hasty: LiveServer) -> None:
    with connect(hasty) as connection:
        connection.sendall(post_bytes(with_prompt(max_tokens=1)))
        answer = connection.recv(1 << 16)
        while not answer.endswith(b"}"):
            answer += connection.recv(1 << 16)
        connection.settimeout(0.6)
        with pytest.raises(TimeoutError):  # idle, but kept alive
            connection.recv(1)
        connection.settimeout(3)
        connection.sendall(b"POST")
        assert read_all(connection) == b""


@pytest.mark.slow
def test_a_long_answer_is_not_cut(hasty: LiveServer) -> None:
    body = with_prompt(max_tokens=150, stream=True, ignore_eos=True)
    with LiveServer(CONFIG, step_s=0.01) as slow, connect(slow) as connection:
        connection.sendall(post_bytes(body))
        answer = b""
        while b"[DONE]" not in answer:
            part = connection.recv(1 << 16)
            assert part
            answer += part
    assert answer.count(b'"text"') == 150


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_protocol, "READ_LIMIT_S", 0.3)
    config = PolicyConfig(kv_tokens=100_000, max_model_len=100_000, max_seqs=4)
    body = with_prompt(max_tokens=90_000, stream=True, ignore_eos=True)
    with LiveServer(config) as server, socket.socket() as deaf:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        deaf.connect(server.socket.getsockname())
        deaf.sendall(post_bytes(body))
        wait_until(lambda: server.metrics()["vllm:request_success_total/abort"] == 1)
        assert server.metrics()["vllm:generation_tokens_total"] < 90_000
        wait_until(lambda: server.metrics()["vllm:kv_cache_usage_perc"] == 0)
