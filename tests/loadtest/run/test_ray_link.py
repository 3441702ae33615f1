"""A load from actors on two nodes of a real Ray cluster; the clock of one node is far ahead."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from servetwin.loadtest.endpoint import Endpoint, probe
from servetwin.loadtest.run import ray_link
from servetwin.loadtest.run.client import LoadOptions, Progress, run_load_test
from servetwin.loadtest.run.journal import Journal
from servetwin.loadtest.run.node_clock import ROUND_TRIPS, NodeClock, clock_facts, measure_clock
from servetwin.loadtest.run.ray_link import ray_links
from servetwin.workloads.errors import LoadTestError
from tests.support.loadtest_server import Reply, ScriptedServer, stream_of
from tests.support.local_ray import local_ray
from tests.support.mock_load import outcome, trace_of

AHEAD_S = 1000
AHEAD = f"""
import time
perf_counter, perf_counter_ns = time.perf_counter, time.perf_counter_ns
time.perf_counter = lambda: perf_counter() + {AHEAD_S}
time.perf_counter_ns = lambda: perf_counter_ns() + {AHEAD_S} * 10**9
"""
"""A module that Python imports at its start: of every process on the second node."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two nodes with four CPUs each."""
    folder = tmp_path_factory.mktemp("ahead")
    (folder / "sitecustomize.py").write_text(AHEAD)
    second = {"num_cpus": 4, "env_vars": {"PYTHONPATH": str(folder)}}
    with local_ray({"num_cpus": 4}, second) as address:
        yield address


@pytest.mark.slow
def test_actors_on_two_nodes_send_one_schedule_on_one_clock(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-7")
    arrivals_s = [index * 0.05 for index in range(12)]
    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        run = run_load_test(
            probe(server.url),
            trace_of(*arrivals_s),
            options=LoadOptions(processes=2, workers=f"ray={cluster}"),
        )
    requests = run.requests
    assert requests["status"].tolist() == ["finished"] * 12
    assert requests["scheduled_s"].tolist() == arrivals_s
    workers = run.meta["client"]["workers"]
    assert sorted(round(worker["clock_offset_s"]) for worker in workers) == [0, AHEAD_S]
    assert len({worker["node"] for worker in workers}) == 2
    assert [round(worker["clock_drift_s"]) for worker in workers] == [0, 0]
    error_s = max(worker["clock_error_s"] for worker in workers)
    at_server_s = [arrival.at_s for arrival in server.arrivals]
    way_s = np.sort(at_server_s) - run.meta["clock_zero_perf_counter_s"]
    way_s -= np.sort(requests["sent_s"])
    assert ((way_s >= -error_s) & (way_s < AHEAD_S / 100)).all()
    assert {arrival.headers["authorization"] for arrival in server.arrivals} == {"Bearer k-7"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_an_actor_that_is_killed_loses_what_it_has_not_ended(cluster: str, tmp_path: Path) -> None:
    """The last request of each of four actors takes long; each has ended two before the others."""
    killed: list[int] = []
    arrived = count()

    def kill(state: Progress) -> None:
        if state.ended >= 12 and not killed:
            killed.append(actors()[0])
            os.kill(killed[0], signal.SIGKILL)

    def reply(body: dict[str, Any]) -> Reply:
        return stream_of(2, pause_s=0.0 if next(arrived) < 12 else 1.0)

    with ScriptedServer(reply).running() as server, Journal(tmp_path, {}) as journal:
        run = run_load_test(
            probe(server.url),
            trace_of(*(index * 0.2 for index in range(16))),
            options=LoadOptions(processes=4, workers=f"ray={cluster}", progress_every_s=0.05),
            on_progress=kill,
            journal=journal,
        )
    is_lost = run.requests["error"] == "client_lost"
    lost = np.flatnonzero(is_lost)
    assert lost.max() >= 12
    assert lost.min() >= 8
    assert len(set(lost % 4)) == 1
    ended = run.requests[~is_lost]
    assert (ended["status"] == "finished").all()
    assert (ended["sent_s"] - ended["scheduled_s"] < AHEAD_S / 100).all()
    assert outcome(run)["lost_processes"] == 1
    assert "was lost with its Ray actor before" in outcome(run)["first_messages"]["client_lost"]


def actors() -> list[int]:
    """The processes of the actors of this user."""
    found = (path for path in Path("/proc").glob("[0-9]*/cmdline"))
    return sorted(int(path.parent.name) for path in found if b"ray::RayWorker" in content(path))


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_more_processes_than_the_cluster_has_cpus_are_refused(cluster: str) -> None:
    with ScriptedServer(lambda body: stream_of(2)).running() as server:
        endpoint = probe(server.url)
        options = LoadOptions(processes=9, workers=f"ray={cluster}")
        with pytest.raises(LoadTestError, match=r"9 processes need as many free CPUs, .* has 8;"):
            run_load_test(endpoint, trace_of(*range(10)), options=options)
    assert server.arrivals == []


def pretend(monkeypatch: pytest.MonkeyPatch, addresses: list[str], cpus: int) -> None:
    """Let the cluster have nodes at these addresses and so many free CPUs."""
    nodes = [{"Alive": True, "NodeManagerAddress": address} for address in addresses]
    gone = {"Alive": False, "NodeManagerAddress": "192.0.2.9"}
    ray = SimpleNamespace(
        nodes=lambda: [*nodes, gone], available_resources=lambda: {"CPU": float(cpus)}
    )

    @contextmanager
    def connected(option: str, address: str | None) -> Iterator[Any]:
        yield ray

    monkeypatch.setattr(ray_link, "ray_cluster", connected)
    monkeypatch.setattr(ray_link, "RayLink", lambda ray, variables: object())


ON_RAY = LoadOptions(workers="ray")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.0.0.9"])
def test_an_address_that_each_node_takes_for_itself_is_refused(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, ["192.0.2.1", "192.0.2.2"], 4)
    with pytest.raises(LoadTestError, match="is another machine on each of 2 nodes"):
        ray_links(Endpoint(f"http://{host}:8000/v1", "m"), ON_RAY, 1, 9).__enter__()
    with ray_links(Endpoint("http://192.0.2.1:8000/v1", "m"), ON_RAY, 1, 9):
        pass
    pretend(monkeypatch, ["192.0.2.1", "192.0.2.1"], 4)
    with ray_links(Endpoint(f"http://{host}:8000/v1", "m"), ON_RAY, 1, 9):
        pass


@pytest.mark.parametrize(
    ("chosen", "wanted", "most", "cpus", "expected"),
    [
        (None, 1, 99, 8, 3),
        (None, 5, 99, 8, 5),
        (None, 50, 99, 8, 8),
        (None, 5, 2, 8, 2),
        (2, 50, 99, 8, 2),
        (7, 1, 4, 8, 4),
    ],
    ids=["one a node", "by rate", "all CPUs", "few requests", "chosen", "chosen, few requests"],
)
def test_how_many_actors_there_are(
    chosen: int | None,
    wanted: int,
    most: int,
    cpus: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, ["192.0.2.1", "192.0.2.2", "192.0.2.3"], cpus)
    options = LoadOptions(workers="ray", processes=chosen)
    with ray_links(Endpoint("http://h:8000/v1", "m"), options, wanted, most) as links:
        assert len(links) == expected


@pytest.mark.slow
def test_a_cluster_without_a_free_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, ["192.0.2.1"], 0)
    with pytest.raises(LoadTestError, match="has 0; give fewer --processes"):
        ray_links(Endpoint("http://h:8000/v1", "m"), ON_RAY, 1, 9).__enter__()


TRUE_OFFSET_NS = -7_000_000_000


class FarClock:
    """Reads ``TRUE_OFFSET_NS`` more than ours; the ways there and back take so long, call by call.

    The last delays stay.
    """

    def __init__(self, ways_s: Sequence[tuple[float, float]]) -> None:
        self._ways_s = ways_s
        self.calls = 0

    async def read_ns(self) -> int:
        there_s, back_s = self._ways_s[min(self.calls, len(self._ways_s) - 1)]
        self.calls += 1
        await asyncio.sleep(there_s)
        now_ns = time.perf_counter_ns() + TRUE_OFFSET_NS
        await asyncio.sleep(back_s)
        return now_ns


@pytest.mark.parametrize(
    "ways_s",
    [[(0.0, 0.0)], [(0.02, 0.0)], [(0.0, 0.02)], [(0.1, 0.0), (0.01, 0.02), (0.0, 0.001)]],
    ids=["near", "slow there", "slow back", "the surest is in the middle"],
)
def test_the_offset_is_within_half_a_round_trip(ways_s: list[tuple[float, float]]) -> None:
    far = FarClock([*ways_s, (0.0, 0.04)] if len(ways_s) > 1 else ways_s)
    found = asyncio.run(measure_clock("far", far.read_ns))
    assert far.calls == ROUND_TRIPS
    assert abs(found.offset_ns - TRUE_OFFSET_NS) <= found.half_round_trip_ns
    if len(ways_s) > 1:  # The third is the shortest; the others take 0.03 s or more.
        assert found.half_round_trip_ns < 15_000_000


def test_facts_have_the_offset_its_error_and_the_drift() -> None:
    before, after = NodeClock("a", 5_000_000_000, 2_000_000), NodeClock("a", 5_001_000_000, 1)
    facts = {"node": "a", "clock_offset_s": 5.0, "clock_error_s": 0.002}
    assert clock_facts([before]) == {**facts, "clock_drift_s": None}
    assert clock_facts([before, after]) == {**facts, "clock_drift_s": 0.001}
