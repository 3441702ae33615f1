"""The listening socket of a local server, its URL, and why there is none."""

import asyncio
import socket

import pytest

from servetwin.workloads.errors import EngineError, MockError
from servetwin.workloads.program.listening import listening_socket, stop_accepting, url_of


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


def test_no_connection_stays_unserved_when_a_server_stops_to_accept() -> None:
    """The signal to stop comes in the very iteration of the loop that accepts a connection."""
    served = [asyncio.run(served_while_stopping()) for _ in range(20)]
    assert True in served


async def served_while_stopping() -> bool:
    """Return whether a client that connects as its server stops was served, not refused."""
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    signal, wire = socket.socketpair()
    with signal, wire, socket.create_connection(server.sockets[0].getsockname()) as client:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.remove_reader(signal)
            stop_accepting(server)

        loop.add_reader(signal, stop)
        wire.send(b"stop")
        client.setblocking(False)
        try:
            return await asyncio.wait_for(loop.sock_recv(client, 5), 10) == b"hello"
        except ConnectionResetError:
            return False


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()
