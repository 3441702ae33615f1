"""Clients of a soak: each does one thing to a server and says what became of it."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tests.fuzz.api_bodies import draw as draw_bad_body

Outcome = Literal["answered", "refused", "left", "LOST"]
"""A whole answer; an error with its reason; gone by our own choice; an end without a word."""

PATIENCE_S = 120.0
PREFIXES = 4
PIPELINED = 3


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended: the outcome, and the status of every answer."""

    outcome: Outcome
    statuses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The server: its port, and what its model takes."""

    port: int
    vocab_size: int
    longest_tokens: int


def body(rng: np.random.Generator, target: Target, longest_output: int = 60) -> bytes:
    """Return a request of mixed size, often with a prefix that others share."""
    prompt_tokens = int(min(rng.lognormal(3.5, 1.1), target.longest_tokens - longest_output - 1))
    shared = int(rng.integers(PREFIXES)) + 300
    own = rng.integers(0, target.vocab_size, max(1, prompt_tokens)).tolist()
    prompt = [shared] * (prompt_tokens // 2) + own[prompt_tokens // 2 :]
    fields = {
        "prompt": prompt,
        "max_tokens": int(rng.integers(1, longest_output)),
        "stream": bool(rng.random() < 0.6),
        "temperature": float(rng.choice([0.0, 0.8])),
        "ignore_eos": True,
    }
    return json.dumps(fields).encode()


def post(content: bytes, path: str = "/v1/completions", close: bool = True) -> bytes:
    """Return the bytes of a request."""
    ending = "Connection: close\r\n" if close else ""
    head = f"POST {path} HTTP/1.1\r\nHost: [::1]\r\n{ending}Content-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def ending_of(answer: bytes, answers: int = 1) -> Ending:
    """Judge what came on a connection until it ended."""
    heads = answer.split(b"HTTP/1.1 ")[1:]
    statuses = tuple(int(head[:3]) for head in heads)
    whole = len(heads) == answers and all(_is_whole(head) for head in heads)
    if not whole:
        return Ending("LOST", statuses)
    refused = any(status != 200 for status in statuses) or b'"error":' in answer
    return Ending("refused" if refused else "answered", statuses)


def _is_whole(head: bytes) -> bool:
    """Whether an answer has its end: all of its length, or the last chunk of a stream."""
    fields, _, content = head.partition(b"\r\n\r\n")
    length = fields.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
    if length:
        return len(content) == int(length)
    said_its_end = b"[DONE]" in content or b'"error":' in content
    streamed = b"text/event-stream" in fields.lower()
    return content.endswith(b"0\r\n\r\n") and (said_its_end or not streamed)


async def exchange(target: Target, sent: bytes, at_once: int = 1 << 16) -> bytes:
    """Send bytes and return all that comes until the connection ends, read so much at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    found = bytearray()
    with contextlib.suppress(OSError):
        writer.write(sent)
        await writer.drain()
        while part := await reader.read(at_once):
            found += part
    writer.close()
    return bytes(found)


async def ask(rng: np.random.Generator, target: Target) -> Ending:
    """Ask and read the answer."""
    return ending_of(await exchange(target, post(body(rng, target))))


async def ask_longest(rng: np.random.Generator, target: Target) -> Ending:
    """Ask with a prompt that fills the model."""
    prompt = rng.integers(0, target.vocab_size, target.longest_tokens - 8).tolist()
    content = json.dumps({"prompt": prompt, "max_tokens": 8, "ignore_eos": True})
    return ending_of(await exchange(target, post(content.encode())))


async def read_byte_by_byte(rng: np.random.Generator, target: Target) -> Ending:
    """Read one byte at a time."""
    return ending_of(await exchange(target, post(body(rng, target, 10)), at_once=1))


async def pipeline(rng: np.random.Generator, target: Target) -> Ending:
    """Send several requests at once on one connection."""
    last = PIPELINED - 1
    sent = [post(body(rng, target, 10), close=i == last) for i in range(PIPELINED)]
    return ending_of(await exchange(target, b"".join(sent)), answers=PIPELINED)


async def send_rubbish(rng: np.random.Generator, target: Target) -> Ending:
    """Send a body that is wrong somewhere."""
    path, _, content = draw_bad_body(rng).partition(b"\n")
    return ending_of(await exchange(target, post(content, path.decode())))


async def leave_early(rng: np.random.Generator, target: Target) -> Ending:
    """Leave after the first bytes of a stream, or before any."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    writer.write(post(body(rng, target)))
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(float(rng.exponential(0.3))):
            await reader.read(int(rng.integers(1, 2000)))
    writer.close()
    return Ending("left")


Client = Callable[[np.random.Generator, Target], Awaitable[Ending]]
CLIENTS: list[tuple[Client, float]] = [
    (ask, 0.62), (leave_early, 0.12), (send_rubbish, 0.14), (read_byte_by_byte, 0.06),
    (pipeline, 0.06),
]  # fmt: skip
"""What clients do, and how often."""


async def one_client(rng: np.random.Generator, target: Target) -> tuple[str, Ending]:
    """Be one of the clients by chance; one that waits too long counts as lost."""
    shares = [share for _, share in CLIENTS]
    client = CLIENTS[rng.choice(len(CLIENTS), p=shares)][0]
    try:
        async with asyncio.timeout(PATIENCE_S):
            return client.__name__, await client(rng, target)
    except (TimeoutError, OSError):
        return client.__name__, Ending("LOST")


class IdleConnections:
    """Connections that are opened and send nothing, for as long as a block lasts."""

    def __init__(self, target: Target, count: int) -> None:
        self._target = target
        self._count = count
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> None:
        for _ in range(self._count):
            _, writer = await asyncio.open_connection("127.0.0.1", self._target.port)
            self._writers.append(writer)

    async def __aexit__(self, *error: object) -> None:
        for writer in self._writers:
            writer.close()
