"""A small router before real servers: least outstanding, in a process of its own.

``python -m tests.support.gateway URL...`` says where it listens. A server that refuses or breaks a
connection is out. A request of it whose client has no byte of an answer yet is sent to another; all
other clients of it see their connection break, as behind any gateway.
"""

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from urllib.parse import urlsplit

PIECE = 1 << 16
HEAD_END, LAST_CHUNK = b"\r\n\r\n", b"0\r\n\r\n"


class Gateway:
    """Passes each request to the server with the fewest, over a connection of its own."""

    def __init__(self, urls: list[str]) -> None:
        self.places = [(parts.hostname, parts.port) for parts in map(urlsplit, urls)]
        self.outstanding = dict.fromkeys(range(len(urls)), 0)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer one client; hang up where no server has a whole answer for it."""
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await whole_request(reader)
            while self.outstanding:
                place = min(self.outstanding, key=self.outstanding.__getitem__)
                begun, ended = await self.pass_on(place, request, writer)
                if ended:
                    writer.close()
                    return
                if begun:
                    break
        writer.transport.abort()

    async def pass_on(self, place: int, request: bytes, writer: StreamWriter) -> tuple[bool, bool]:
        """Return whether the client has a byte of the answer, and whether it has all of it."""
        self.outstanding[place] += 1
        answer, sent = b"", False
        with suppress(OSError):
            reader, upstream = await asyncio.open_connection(*self.places[place])
            upstream.write(request)
            while piece := await reader.read(PIECE):
                answer += piece
                head, _, body = answer.partition(HEAD_END)
                if body:
                    writer.write(answer if not sent else piece)
                    sent = True
                    await writer.drain()
            upstream.close()
        ended = answer.endswith(LAST_CHUNK) or (sent and b"content-length" in head.lower())
        if not ended:
            self.outstanding.pop(place, None)
        elif place in self.outstanding:
            self.outstanding[place] -= 1
        return sent, ended


async def whole_request(reader: StreamReader) -> bytes:
    """Return the bytes of a request, which asks the server to close its connection."""
    head = await reader.readuntil(HEAD_END)
    lines = head.removesuffix(HEAD_END).split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    lengths = [
        line.partition(b":")[2] for line in kept if line.lower().startswith(b"content-length")
    ]
    body = await reader.readexactly(int(lengths[0])) if lengths else b""
    return b"\r\n".join([*kept, b"Connection: close"]) + HEAD_END + body


async def main(urls: list[str]) -> None:
    server = await asyncio.start_server(Gateway(urls).serve, "127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
