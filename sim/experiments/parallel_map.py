"""A function mapped over items, on processes of this machine or on a Ray cluster."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any, TypeVar

from sim.experiments.ray_cluster import ray_cluster

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")
Call = Callable[[Shared, Item], Result]

_here: list[Any] = []
"""In a worker process: the function and its first argument."""


def map_on_processes(
    function: Call[Shared, Item, Result], shared: Shared, items: Sequence[Item], processes: int
) -> Iterator[tuple[int, Result]]:
    """Yield (index, ``function(shared, item)``) for every item, in the order of completion.

    ``shared`` is sent once to every process. With one process, this one does the work. If the
    caller stops iterating, the remaining items are not started.
    """
    workers = min(processes, len(items))
    if workers <= 1:
        yield from ((place, function(shared, item)) for place, item in enumerate(items))
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (function, shared))
    try:
        places = {pool.submit(_call, item): place for place, item in enumerate(items)}
        for future in as_completed(places):
            yield places[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def map_on_ray(
    function: Call[Shared, Item, Result], shared: Shared, items: Sequence[Item]
) -> Iterator[tuple[int, Result]]:
    """``map_on_processes`` on the Ray cluster of the environment, or on one of this machine.

    Raises ``ServetwinError`` if Ray is not installed.
    """
    with ray_cluster("--ray") as ray:
        remote, common = ray.remote(function), ray.put(shared)
        places = {remote.remote(common, item): place for place, item in enumerate(items)}
        waiting = list(places)
        while waiting:
            ready, waiting = ray.wait(waiting)
            yield from ((places[one], ray.get(one)) for one in ready)


def end_with_parent() -> None:
    """Make a worker process ignore Ctrl-C and end when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_await, args=(parent_process(),), daemon=True).start()


def _await(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _begin(function: Callable[[Any, Any], Any], shared: Any) -> None:
    end_with_parent()
    _here[:] = [function, shared]


def _call(item: Any) -> Any:
    function, shared = _here
    return function(shared, item)
