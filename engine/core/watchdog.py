"""Watch whether the core moves: it answers a ping between two steps."""

import asyncio

from servetwin.engine.core.core_client import CoreClient

_CHECK_EVERY_S = 1.0
_MIN_CHECKS = 5
"""Within the limit, however short it is."""


async def watch(client: CoreClient, step_limit_s: float) -> None:
    """Tell ``client`` when its core has said nothing for ``step_limit_s``, and when it does again.

    What counts are the checks of this loop, so that a pause of this process is not blamed on the
    core.
    """
    interval_s = min(_CHECK_EVERY_S, step_limit_s / _MIN_CHECKS)
    why = f"the engine core has not ended a step for {step_limit_s:g} s (--step-limit)"
    silent_checks, asked = 0, False
    while True:
        messages = client.messages
        if not asked:
            client.ping()
        await asyncio.sleep(interval_s)
        asked = client.messages == messages and client.state in ("ready", "stalled")
        silent_checks = silent_checks + 1 if asked else 0
        client.set_stalled(why if silent_checks * interval_s >= step_limit_s else None)
