"""Parse bodies: small ones at once, long texts in a thread, large ones in a few processes.

A body of some megabytes keeps an interpreter busy for up to two seconds, whatever thread it is
parsed in. What comes back is small: a prompt that fits the model, or an error.
"""

import asyncio
import os
import signal
from contextlib import nullcontext

from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from servetwin.engine.http.api_errors import ApiError
from servetwin.engine.http.body_reader import LARGE_BODY_BYTES
from servetwin.engine.http.protocol import (
    GenerationBody,
    GenerationRequest,
    ModelLimits,
    read_request,
)

# So that parsing gives way to the event loop and the core.
_NICENESS = 5
# Larger bodies are read in a thread where the tokenizer is slow.
SMALL_BODY_BYTES = 4096
# After so long the process is ended and the body refused.
PARSE_LIMIT_S = 20.0
PARSERS = 2
# Larger bodies leave one of the processes to the others.
HUGE_BODY_BYTES = 1 << 20


class BodyParser:
    """Turns bodies into requests. Its processes start when large bodies need them, and end with the
    event loop.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(PARSERS)
        self._huge_bodies = asyncio.Semaphore(PARSERS - 1)

    async def parse(
        self, kind: type[GenerationBody], raw: bytearray, limits: ModelLimits
    ) -> GenerationRequest:
        """Return what a body asks for. Raises ``ApiError`` (400, 404) for what is wrong with it."""
        if len(raw) <= (SMALL_BODY_BYTES if limits.tokenizer.is_slow else LARGE_BODY_BYTES):
            return read_request(kind, raw, limits)
        if len(raw) <= LARGE_BODY_BYTES:
            return await asyncio.to_thread(read_request, kind, raw, limits)
        async with (
            self._huge_bodies if len(raw) > HUGE_BODY_BYTES else nullcontext(),
            self._turns,
        ):
            return await _in_process(kind, raw, limits)


async def _in_process(
    kind: type[GenerationBody], raw: bytearray, limits: ModelLimits
) -> GenerationRequest:
    """Let a process parse that is free, or a new one."""
    try:
        with fail_after(PARSE_LIMIT_S):
            return await to_process.run_sync(
                _read, kind, raw, limits, cancellable=True, limiter=CapacityLimiter(1)
            )
    except TimeoutError:
        reason = f"took more than {PARSE_LIMIT_S:g} s to parse"
    except BrokenWorkerProcess:
        reason = "could not be parsed: its process has died"
    raise ApiError(400, f"the body {reason}", code="invalid_json")


def _read(kind: type[GenerationBody], raw: bytearray, limits: ModelLimits) -> GenerationRequest:
    """Parse in a process of its own, which leaves signals to its parent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    return read_request(kind, raw, limits)
