"""The listening socket of a local server, its URL, and why there is none."""

import socket

import pytest

from workloads.errors import EngineError, MockError
from workloads.listening import listening_socket, url_of


def test_a_free_port_answers_at_its_url() -> None:
    with listening_socket("127.0.0.1", 0, MockError) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_a_socket_that_does_not_accept_refuses_connections() -> None:
    with listening_socket("127.0.0.1", 0, MockError, accepts=False) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_the_second_on_a_port_and_an_unknown_host_are_errors() -> None:
    with listening_socket("127.0.0.1", 0, EngineError) as first:
        port = first.getsockname()[1]
        with pytest.raises(EngineError, match=f":{port}: Address already in use"):
            listening_socket("127.0.0.1", port, EngineError)
    with pytest.raises(MockError, match="cannot listen on no"):
        listening_socket("no.such.host.invalid", 0, MockError)
