"""A cluster that cannot be used is one line, in seconds; its processes get our packages."""

import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import servetwin
from servetwin.sim.experiments import ray_cluster as module
from servetwin.sim.experiments.ray_cluster import PACKAGES, ray_cluster
from servetwin.workloads.errors import ServetwinError


@pytest.fixture(autouse=True)
def _with_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: True)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def refusal(address: str | None = None) -> str:
    with pytest.raises(ServetwinError) as caught:
        ray_cluster("--workers ray", address).__enter__()
    return str(caught.value)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert refusal() == "--workers ray needs ray: pip install 'servetwin[ray]'"


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "head:x", "ray://head:10001", "a b"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    assert refusal(address) == f"--workers ray: {address!r} is no HOST:PORT of a Ray cluster"


@pytest.mark.parametrize("port", [9, 65_536])
def test_where_nothing_listens_no_cluster_answers(port: int) -> None:
    said = f"no Ray cluster answers at 127.0.0.1:{port}; 'ray start --head' starts one"
    assert refusal(f"127.0.0.1:{port}") == f"--workers ray: {said}"


def test_the_address_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert "no Ray cluster answers at 127.0.0.1:9;" in refusal()


def test_what_listens_may_be_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTH_CHECK_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"no Ray cluster answers at {address};" in refusal(address)


class FakeRay(SimpleNamespace):
    """Takes down with what it is started, and whether it is left."""

    left = False

    def init(self, **given: Any) -> None:
        if reason := getattr(self, "refuses", None):
            raise ConnectionError(reason)
        self.given = given
        (package,) = map(Path, given["runtime_env"]["py_modules"])
        self.shipped = sorted(str(f.relative_to(package.parent)) for f in package.glob("*"))
        self.sources = list((package / "sim" / "core").glob("*.py"))

    def shutdown(self) -> None:
        self.left = True


def test_the_cluster_gets_our_packages_and_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(KeyError), ray_cluster("--ray"):
        raise KeyError
    assert ray.left
    assert ray.given["address"] is None
    modules = [path.name for path in Path(str(servetwin.__file__)).parent.glob("*.py")]
    assert "core_cache.py" in modules  # which the package imports at once
    names = [*modules, *PACKAGES]
    assert ray.shipped == sorted(f"servetwin/{name}" for name in names)
    assert ray.sources


def test_what_ray_says_of_a_refused_connection_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(refuses="Version mismatch:\n  Ray 1\n  Ray 2"))
    assert refusal() == "--workers ray: Ray does not connect: Version mismatch: Ray 1 Ray 2"
