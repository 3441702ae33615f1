"""Where the parts of a stream are simulated, and what is half of a choice."""

from typing import Any

import pytest

from servetwin.app.scenario.options.simulations import StreamOptions
from servetwin.sim.long_runs.partitioned_run import Part, simulate_part
from servetwin.workloads.errors import ServetwinError

PARTS = [Part(0, 4), Part(4, 9)]


@pytest.mark.parametrize(("asked", "address"), [("", None), ("head:6379", "head:6379")])
def test_parts_go_to_ray(monkeypatch: pytest.MonkeyPatch, asked: str, address: str | None) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        "servetwin.sim.experiments.ray_cluster.map_on_ray", lambda *all_: given.append(all_)
    )
    run: Any = object()
    StreamOptions(partitions=2, ray=asked).simulated(run, PARTS)
    ((function, shared, items, where, called),) = given
    assert (function, shared, items, where) == (simulate_part, run, PARTS, address)
    assert called(1) == "part of the requests 4 to 9"


@pytest.mark.parametrize(("asked", "processes"), [(3, 3), (None, 7)])
def test_parts_go_to_processes(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, processes: int
) -> None:
    given: list[Any] = []
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    monkeypatch.setattr(
        "servetwin.sim.experiments.parallel_map.map_on_processes", lambda *all_: given.append(all_)
    )
    run: Any = object()
    StreamOptions(partitions=2, processes=asked).simulated(run, PARTS)
    assert given[0][:4] == (simulate_part, run, PARTS, processes)


def test_places_of_parts_want_parts() -> None:
    StreamOptions(partitions=1, processes=1).check()
    with pytest.raises(ServetwinError, match=r"^--ray: is for the parts of a stream"):
        StreamOptions(ray="").check()
