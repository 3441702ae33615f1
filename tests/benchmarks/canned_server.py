"""A server that costs next to nothing: one finished answer of 16 tokens, sent whole.

For what a client can take at most (``tests.benchmarks.processes``). Prints its port.
"""

import asyncio
import json

TOKENS = 16
_MODELS = json.dumps({"object": "list", "data": [{"id": "canned", "object": "model"}]}).encode()


def _events() -> bytes:
    chunks = [
        {"id": "r", "choices": [{"index": 0, "text": f" t{index}", "finish_reason": None}]}
        for index in range(TOKENS)
    ]
    chunks[-1]["choices"][0]["finish_reason"] = "length"  # type: ignore[index]
    lines = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    return b"".join(lines) + b"data: [DONE]\n\n"


def _reply(kind: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, len(body)) + body


_ANSWER = _reply(b"text/event-stream", _events())
_CARD = _reply(b"application/json", _MODELS)


class _Connection(asyncio.Protocol):
    """Answers each request when all of its body is here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        if head.startswith(b"GET"):
            self._answer(_CARD, body)
        else:
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(body) >= length:
                self._answer(_ANSWER, body[length:])

    def _answer(self, reply: bytes, rest: bytes) -> None:
        self._data = rest
        self._transport.write(reply)  # type: ignore[attr-defined]


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
