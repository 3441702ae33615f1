"""A function mapped over items, on processes of this machine.

Processes are killed: where memory is short, by the system or themselves, or with a node of a
cluster. Which of the
items under way was the cause is not known then. They are begun again, on fresh processes; an item
that was under way at two deaths is computed alone, after all others, so that a third death is its
own (``LostItems``).
"""

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread, current_thread, main_thread
from threading import enumerate as enumerate_threads
from typing import Any, TypeVar
from warnings import catch_warnings

from servetwin.address_space import most_addresses
from servetwin.workloads.errors import ServetwinError

# How often an item is begun whose process is killed; processes are also killed by chance.
TRIES = 3
# Returns what the item at a place is called.
Called = Callable[[int], str]
_MOST_NAMED = 3


class LostItems(ServetwinError):
    """The processes of some items were killed in every try; all other items have their results."""

    exit_code = 1

    def __init__(self, places: Iterable[int], called: Called) -> None:
        self.places = sorted(places)
        names = [called(place) for place in self.places[:_MOST_NAMED]]
        if more := len(self.places) - len(names):
            names.append(f"{more} more")
        super().__init__(
            f"{'; '.join(names)}: the process was killed in each of {TRIES} tries, perhaps for "
            "lack of memory"
        )


def numbered(place: int) -> str:
    """Return what an item without a name is called."""
    return f"item {place + 1}"


Item = TypeVar("Item")
Result = TypeVar("Result")

# Bytes of address space below which a process has no room for the threads of others.
LEAST_ADDRESSES = 1 << 30
# Items a process: the one that it computes, and the next, so that none waits for the caller.
_UNDER_WAY = 2

_NO_GUARD = (
    "no process could begin: a script that computes on several processes needs "
    "'if __name__ == \"__main__\":' around its calls"
)
# In a worker process: the function.
_here: list[Any] = []


def map_on_processes(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    called: Called = numbered,
) -> Iterator[tuple[int, Result]]:
    """Yield (index, ``function(item)``) for every item, in the order of completion.

    ``function`` is sent once to every process, with what is bound to it. With one process, or
    little address space (``ulimit -v``), this one does the work. If the caller stops iterating, the
    remaining items are not started. Raises ``LostItems`` after the last result, with what items are
    ``called``, if the processes of some were killed in every try.
    """
    workers = min(processes, len(items))
    if workers <= 1 or most_addresses() < LEAST_ADDRESSES:
        yield from ((place, function(item)) for place, item in enumerate(items))
        return
    waiting, deaths, lost = dict(enumerate(items)), Counter[int](), list[int]()
    while waiting:
        together = {place: waiting[place] for place in waiting if deaths[place] < TRIES - 1}
        group = together or dict(islice(waiting.items(), 1))
        under_way: dict[Future[Any], int] = {}
        for place, result in _computed(function, group, workers, under_way):
            del waiting[place]
            yield place, result
        deaths.update(under_way.values())
        lost += [place for place in waiting if deaths[place] == TRIES]
        waiting = {place: item for place, item in waiting.items() if deaths[place] < TRIES}
    if lost:
        raise LostItems(lost, called)


def _computed(
    function: Callable[[Any], Any],
    items: Mapping[int, Any],
    workers: int,
    under_way: "dict[Future[Any], int]",
) -> Iterator[tuple[int, Any]]:
    """Yield place and result of each item that ends, until a process is killed.

    ``under_way`` then has the places that were being computed; it is empty if all have ended.
    Raises ``ServetwinError`` where no process has begun, as in a script without a guard.
    """
    context = get_context("fork" if begin_as_copies() else "spawn")
    rest = iter(items.items())
    workers = min(workers, len(items))
    has_begun = context.RawValue("b", 0)
    pool = ProcessPoolExecutor(workers, context, _begin, (function, has_begun))
    try:
        while True:
            # What is under way says so as well; and Python warns of a fork beside any thread.
            with (
                suppress(BrokenProcessPool),
                catch_warnings(action="ignore", category=DeprecationWarning),
            ):
                for place, item in islice(rest, _UNDER_WAY * workers - len(under_way)):
                    under_way[pool.submit(_call, item)] = place
            if not under_way:
                return
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            ended = [one for one in done if not isinstance(one.exception(), BrokenProcessPool)]
            for future in ended:
                yield under_way.pop(future), future.result()
            if len(ended) < len(done):
                if not has_begun.value:
                    raise ServetwinError(_NO_GUARD)
                return
    finally:
        pool.shutdown(cancel_futures=True)


def begin_as_copies() -> bool:
    """Return whether processes begin as copies of this one, which has loaded all that they need.

    Where that may not be safe, beside threads that hold locks and on other systems than Linux, a
    fresh process loads it anew, for as long as a second, and what it is given must be pickled.
    """
    others = [thread for thread in enumerate_threads() if thread is not main_thread()]
    may_fork = sys.platform == "linux" and current_thread() is main_thread()
    return may_fork and all(thread.daemon for thread in others)


def end_with_parent() -> None:
    """Make a worker process ignore Ctrl-C and end when its parent does, or by SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_await, args=(parent_process(),), daemon=True).start()


def _await(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _begin(function: Callable[[Any], Any], has_begun: Any) -> None:
    has_begun.value = 1
    gc.freeze()  # what a copy has from its parent is not searched for garbage, and so stays shared
    end_with_parent()
    _here[:] = [function]


def _call(item: Any) -> Any:
    (function,) = _here
    try:
        return function(item)
    except (MemoryError, SystemError):  # the second is a first that some C has lost
        os._exit(1)  # while there is memory for that: it counts as a process that is killed
