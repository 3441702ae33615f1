"""Items computed in parallel, on processes and on Ray."""

import sys
from types import SimpleNamespace

import pytest

from sim.experiments import ray_cluster
from sim.experiments.parallel_map import map_on_processes, map_on_ray


def square(shared: int, item: int) -> int:
    return shared + item**2


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_items_side_by_side_come_with_their_places(processes: int) -> None:
    assert dict(map_on_processes(square, 1, [3, 1, 2], processes)) == {0: 10, 1: 2, 2: 5}


def test_ray_gets_every_item_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the calls that Ray documents: starting it takes seconds."""
    stand_in = SimpleNamespace(
        init=lambda **_: None,
        shutdown=lambda: None,
        put=lambda value: value,
        remote=lambda function: SimpleNamespace(remote=lambda *given: (function, given)),
        wait=lambda waiting: (waiting[-1:], waiting[:-1]),
        get=lambda task: task[0](*task[1]),
    )
    monkeypatch.setattr(ray_cluster, "find_spec", lambda _: True)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    assert dict(map_on_ray(square, 1, [3, 1, 2])) == {0: 10, 1: 2, 2: 5}
