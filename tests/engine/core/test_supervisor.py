"""The supervisor: what is started again, how often, and what is said when it is not."""

import asyncio
from typing import Any

import pytest

from servetwin.engine.core.core import CoreClock, EngineCore
from servetwin.engine.core.core_client import CoreClient
from servetwin.engine.core.supervisor import Supervisor
from servetwin.engine.text.byte_tokenizer import ByteTokenizer
from servetwin.policies.config import PolicyConfig
from servetwin.workloads.errors import EngineError
from tests.support.fake_engine import build_fake
from tests.support.live_server import wait_until

CONFIG = PolicyConfig(kv_tokens=64, max_model_len=64)


def build_nothing(clock: CoreClock) -> tuple[EngineCore, dict[str, Any]]:
    raise EngineError("no such model")


def test_a_core_that_cannot_start_is_not_started_again() -> None:
    supervisor = Supervisor(build_nothing, CoreClient("fake", ByteTokenizer()), max_restarts=3)
    with pytest.raises(EngineError, match=r"^no such model$"):
        asyncio.run(supervisor.run())


def test_each_core_goes_on_with_the_clock_of_the_first_until_the_limit() -> None:
    async def kill_each() -> list[tuple[str, str, int]]:
        client = CoreClient("fake", ByteTokenizer())
        supervisor = Supervisor(build_fake(CONFIG), client, max_restarts=1)
        seen: list[tuple[str, str, int]] = []

        async def kill() -> None:
            for _ in range(2):
                await asyncio.to_thread(wait_until, lambda: client.state == "ready")
                assert supervisor.link is not None
                pid = supervisor.link.process.pid or 0
                seen.append((client.state, client.why_died, pid))
                supervisor.link.process.kill()
                await asyncio.to_thread(wait_until, lambda: client.state != "ready")

        killer = asyncio.create_task(kill())
        with pytest.raises(EngineError, match=r"gone \(exit code -9\); .* 1 times within 300 s"):
            await supervisor.run()
        await killer
        return seen

    first, second = asyncio.run(kill_each())
    assert first[:2] == second[:2] == ("ready", "")
    assert first[2] != second[2]
