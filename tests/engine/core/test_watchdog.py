"""The watchdog: silence is counted in its own checks, and ends with any message."""

import asyncio

import pytest

from servetwin.engine.core.core_client import CoreClient
from servetwin.engine.core.messages import Pong, Ready
from servetwin.engine.core.supervisor import watch
from servetwin.engine.text.byte_tokenizer import ByteTokenizer

FACTS = {"model": "fake"}


class SilentLink:
    """Answers so many pings, then none until it is woken."""

    def __init__(self, client: CoreClient, answers: int) -> None:
        self.client = client
        self.answers = answers

    def ping(self) -> None:
        if self.answers:
            self.answers -= 1
            self.client._receive(Pong())


def test_a_silent_core_is_stalled_and_moves_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def states() -> list[str]:
        client = CoreClient("fake", ByteTokenizer())
        client._receive(Ready(FACTS))
        link = SilentLink(client, answers=2)
        monkeypatch.setattr(client, "ping", link.ping)
        seen: list[str] = []

        async def count(seconds: float) -> None:
            seen.append(client.state)
            if len(seen) == 12:
                client._receive(Pong())
            if len(seen) == 14:
                raise asyncio.CancelledError

        monkeypatch.setattr(asyncio, "sleep", count)
        with pytest.raises(asyncio.CancelledError):
            await watch(client, step_limit_s=5.0)
        return seen

    assert asyncio.run(states()) == ["ready"] * 7 + ["stalled"] * 5 + ["ready"] * 2


def test_a_core_that_starts_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def states() -> set[str]:
        client, seen = CoreClient("fake", ByteTokenizer()), set[str]()

        async def count(seconds: float) -> None:
            seen.add(client.state)
            client.messages -= 1
            if client.messages < -20:
                raise asyncio.CancelledError

        monkeypatch.setattr(asyncio, "sleep", count)
        with pytest.raises(asyncio.CancelledError):
            await watch(client, step_limit_s=5.0)
        return seen

    assert asyncio.run(states()) == {"starting"}
