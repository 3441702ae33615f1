"""Items computed in parallel, on processes and on a real Ray cluster, some of which are killed."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from servetwin.sim.experiments.parallel_map import LostItems, map_on_processes
from servetwin.sim.experiments.ray_cluster import map_on_ray
from servetwin.workloads.errors import TraceError
from tests.support.local_ray import local_ray
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow

ITEMS = [3, 1, 2, 5, 4, 6, 8, 7]
SQUARES = {place: 1 + item**2 for place, item in enumerate(ITEMS)}
Mapped = Callable[..., Iterator[tuple[int, int]]]


def square(shared: int, item: int) -> int:
    return shared + item**2


@dataclass(frozen=True)
class Deaths:
    """Items whose process is killed, and how often; each death leaves a file in ``folder``."""

    folder: Path
    of_item: dict[int, int]

    def begun(self, item: int) -> int:
        return len(list(self.folder.glob(f"{item}-*")))


def square_or_die(deaths: Deaths, item: int) -> int:
    number = deaths.begun(item)
    (deaths.folder / f"{item}-{number}").touch()
    if number < deaths.of_item.get(item, 0):
        os.kill(os.getpid(), signal.SIGKILL)
    return 1 + item**2


def square_or_find_no_memory(shared: int, item: int) -> int:
    if item == 5:
        raise MemoryError
    if item == 8:
        raise SystemError("error return without exception set")
    return square(shared, item)


def refuse(shared: int, item: int) -> int:
    raise TraceError(f"{item} cannot be")


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    with local_ray({"num_cpus": 2}) as address:
        yield address


@pytest.fixture(params=["processes", "ray"])
def mapped(request: pytest.FixtureRequest) -> Mapped:
    """Each kind of map, on two processes."""
    if request.param == "processes":
        return on_processes
    address = request.getfixturevalue("ray_address")
    return lambda function, shared, **more: map_on_ray(
        partial(function, shared), ITEMS, address, **more
    )


def on_processes(function: Any, shared: Any, **more: Any) -> Iterator[tuple[int, int]]:
    return map_on_processes(partial(function, shared), ITEMS, 2, **more)


@pytest.mark.parametrize("processes", [1, 2])
def test_items_side_by_side_come_with_their_places(processes: int) -> None:
    assert dict(map_on_processes(partial(square, 1), ITEMS, processes)) == SQUARES


@pytest.mark.parametrize("of_item", [{1: 1, 7: 1}, {7: 2}], ids=["two items", "one twice"])
def test_what_was_under_way_at_a_death_begins_again(
    tmp_path: Path, of_item: dict[int, int]
) -> None:
    """Nothing is lost, and nothing comes twice."""
    found = list(on_processes(square_or_die, deaths := Deaths(tmp_path, of_item)))
    assert len(found) == len(ITEMS)
    assert dict(found) == SQUARES
    assert all(deaths.begun(item) > killed for item, killed in of_item.items())


@pytest.mark.parametrize(
    ("mapped", "of_item", "lost"),
    [("processes", {5: 9, 8: 9}, [5, 8]), ("ray", {7: 2, 8: 9}, [8])],
    ids=["processes", "ray"],
    indirect=["mapped"],
)
def test_what_is_killed_in_three_tries_is_named_after_all_others(
    mapped: Mapped, tmp_path: Path, of_item: dict[int, int], lost: list[int]
) -> None:
    """Whose process is killed twice has its result, and none comes twice.

    Each death costs Ray seconds: two items stand there for those above.
    """
    deaths, found = Deaths(tmp_path, of_item), list[tuple[int, int]]()
    results = mapped(square_or_die, deaths, called=lambda place: f"number {ITEMS[place]}")
    with pytest.raises(LostItems) as caught:
        found.extend(results)
    names = "; ".join(f"number {item}" for item in lost)
    assert str(caught.value).startswith(f"{names}: the process was killed in each of 3 t")
    assert caught.value.places == [ITEMS.index(item) for item in lost]
    assert len(found) == len(ITEMS) - len(lost)
    assert dict(found) == {p: SQUARES[p] for p in SQUARES if p not in caught.value.places}
    assert deaths.begun(8) <= 3


def test_what_is_under_way_beside_a_deadly_item_is_not_blamed(tmp_path: Path) -> None:
    """The other item shares its pool twice with the deadly one, and is computed all the same."""
    deaths = Deaths(tmp_path, {3: 9})
    with pytest.raises(LostItems) as caught:
        list(map_on_processes(partial(square_or_die, deaths), [3, 1], 2))
    assert caught.value.places == [0]
    assert str(caught.value).startswith("item 1: ")


def test_items_without_memory_are_named_after_all_others(capfd: pytest.CaptureFixture[str]) -> None:
    found = list[tuple[int, int]]()
    with pytest.raises(LostItems) as caught:
        found.extend(on_processes(square_or_find_no_memory, 1))
    assert {ITEMS[place] for place in caught.value.places} == {5, 8}
    assert len(found) == len(ITEMS) - 2
    assert "Error" not in capfd.readouterr().err  # Objects of earlier tests may warn there.


def process_of(shared: int, item: int) -> int:
    return os.getpid()


def test_without_room_for_their_threads_there_are_no_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for room, alone in ((512 << 20, True), (resource.RLIM_INFINITY, False)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, room=room: (room, -1))
        found = dict(on_processes(process_of, 0)).values()
        assert (set(found) == {os.getpid()}) is alone


def test_an_error_of_the_function_is_raised_as_it_was(mapped: Mapped) -> None:
    with pytest.raises(TraceError, match=r"^\d cannot be$"):
        list(mapped(refuse, 1))


def test_a_script_without_a_guard_ends_with_the_reason(tmp_path: Path) -> None:
    """Where its processes are fresh ones: beside a thread of its own."""
    script = tmp_path / "script.py"
    script.write_text(
        "from operator import neg\n"
        "from threading import Timer\n"
        "from servetwin.sim.experiments.parallel_map import map_on_processes\n"
        "Timer(1.0, print).start()\n"
        "list(map_on_processes(neg, [1, 2], 2))\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 1
    # Where the workers die halfway, Python adds what semaphores they left.
    said = [line for line in done.stderr.splitlines() if line.startswith("servetwin")]
    assert "no process could begin" in said[-1]
