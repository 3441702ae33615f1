"""A client without manners: a socket to a live server, and whatever bytes a test wants to send."""

import json
import socket
from typing import Any

from tests.support.live_server import COMPLETIONS, LiveServer


def connect(server: LiveServer, source: str = "127.0.0.1") -> socket.socket:
    """Connect from an address of this machine and send nothing."""
    url = server.client.base_url
    return socket.create_connection((url.host, url.port or 80), 20, (source, 0))


def post_bytes(body: dict[str, Any], path: str = COMPLETIONS) -> bytes:
    """Return the bytes of a whole request."""
    content = json.dumps(body).encode()
    return head(len(content), path) + content


def head(length: int, path: str = COMPLETIONS, *more: str) -> bytes:
    """Return the headers of a request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *more, "", ""]
    return "\r\n".join(lines).encode()


def read_all(connection: socket.socket) -> bytes:
    """Return all that the server sends until it closes the connection."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
