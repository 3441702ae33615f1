"""The listening socket of a local server, its URL, and how it stops to accept connections."""

import asyncio
import socket

from servetwin.workloads.errors import ServetwinError


def listening_socket(
    host: str, port: int, error: type[ServetwinError], *, accepts: bool = True
) -> socket.socket:
    """Return a socket that listens on ``port``, 0 for a free one; without ``accepts`` only bound.

    Raises ``error`` where that fails.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        # asyncio sets TCP_NODELAY only on sockets that know their protocol; without it the chunks
        # of a reused connection wait for the client's delayed acknowledgements
        listener = socket.socket(family, kind, protocol)
    except OSError as problem:
        raise error(f"cannot listen on {host}: {problem.strerror}") from problem
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        if accepts:  # now, so that of two servers on one port the second learns it here
            listener.listen()
    except OSError as problem:
        listener.close()
        raise error(f"cannot listen on {host}:{port}: {problem.strerror}") from problem
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL at which a listening socket answers."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def stop_accepting(server: asyncio.Server) -> None:
    """Close a listening server in its event loop, a moment after its last accepted connection.

    A server that is closed at once leaves a connection open and unread for which asyncio has
    still to make the transport: its client would wait forever.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    loop.call_soon(server.close)
