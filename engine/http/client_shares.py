"""What one client, by its address, may take of the server at once."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.datastructures import Address

from servetwin.engine.http.api_errors import ApiError

# Large bodies that are held at a time.
LARGE_BODIES = 16
# Those of one client; more of them wait, unread.
CLIENT_LARGE_BODIES = LARGE_BODIES // 2


@dataclass(slots=True)
class Client:
    """What a client has taken: answers that are not at their end, and large bodies."""

    answers: int = 0
    large_bodies: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(CLIENT_LARGE_BODIES)
    )


class ClientShares:
    """Counts what clients have taken; ``most_answers`` None has no limit."""

    def __init__(self, most_answers: int | None) -> None:
        self._most_answers = most_answers
        self._clients: dict[str, Client] = {}

    @contextmanager
    def taken(self, address: Address | None, answers: int = 1) -> Iterator[Client]:
        """Count ``answers`` for as long as the block lasts.

        Raises ``ApiError`` (429) where that would be more than one client may have.
        """
        host = address.host if address else ""
        client = self._clients.setdefault(host, Client())
        if self._most_answers is not None and client.answers + answers > self._most_answers:
            reason = f"{self._most_answers} unfinished answers are the most of one client"
            raise ApiError(429, reason, code="client_limit", headers={"retry-after": "1"})
        client.answers += answers
        try:
            yield client
        finally:
            client.answers -= answers
            if not client.answers:
                del self._clients[host]
