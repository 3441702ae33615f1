"""A Ray cluster: connect to it, and map a function over items on its nodes."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import servetwin
from servetwin.sim.experiments import parallel_map
from servetwin.workloads.errors import ServetwinError

# Packages sent to the processes of the cluster, whatever is installed on their nodes.
PACKAGES = ("workloads", "policies", "sim", "loadtest")
# Files left out of them: modules that were compiled for this machine.
LEFT_HERE = ["__pycache__", "*.so", "*.pyd"]
# Timeout of a connection to the cluster.
CONNECT_S = 4.0
# Timeout of Ray's own check; loading Ray takes most of it.
HEALTH_CHECK_S = 15.0
_ROOT = Path(__file__).parents[2]
_LONGEST_REASON = 200


@contextmanager
def ray_cluster(option: str, address: str | None = None) -> Iterator[Any]:
    """Connect to a cluster and yield Ray; leave the cluster afterwards.

    The cluster is that at ``address``, ``HOST:PORT``; else that of ``RAY_ADDRESS``, else the one
    that runs on this machine, which is started where there is none. Raises ``ServetwinError``,
    which names the ``option``, if Ray is not installed or the address does not answer.
    """
    if find_spec("ray") is None:
        raise ServetwinError(f"{option} needs ray: pip install 'servetwin[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address := address or os.environ.get("RAY_ADDRESS"):
        _require_answer(option, address)
    ray: Any = import_module("ray")
    before = signal.getsignal(signal.SIGTERM)
    try:
        with _packages() as folder:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level="error",
                runtime_env=_runtime_env(folder),
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ServetwinError(f"{option}: Ray does not connect: {in_one_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
        with suppress(ValueError):  # Signals can be handled in the main thread only.
            signal.signal(signal.SIGTERM, before)  # Ray had put a handler of its own there.


def in_one_line(error: Exception) -> str:
    """Return an error message of Ray, which has many lines, as one short line."""
    return " ".join(str(error).split())[:_LONGEST_REASON]


@contextmanager
def _packages() -> Iterator[Path]:
    """Yield a folder ``servetwin`` with the packages, which lie beside it in a checkout."""
    with TemporaryDirectory() as folder:
        package = Path(folder) / "servetwin"
        package.mkdir()
        for module in Path(str(servetwin.__file__)).parent.glob("*.py"):
            (package / module.name).symlink_to(module)
        for name in PACKAGES:
            (package / name).symlink_to(_ROOT / name)
        yield package


def _runtime_env(package: Path) -> dict[str, Any]:
    environment: dict[str, Any] = {"py_modules": [str(package)], "excludes": LEFT_HERE}
    if shlex.quote(sys.executable) != sys.executable:
        # Ray does not quote the path of its interpreter; then all nodes have to have ours there.
        environment["py_executable"] = shlex.quote(sys.executable)
    return environment


def _require_answer(option: str, address: str) -> None:
    """Raise ``ServetwinError`` unless a cluster answers: Ray waits for two minutes, then exits."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ServetwinError(f"{option}: {address!r} is no HOST:PORT of a Ray cluster")
    command = ("-m", "ray.scripts.scripts", "health-check", "--address", address)
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
        subprocess.run(
            [sys.executable, *command], check=True, capture_output=True, timeout=HEALTH_CHECK_S
        )
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        raise ServetwinError(
            f"{option}: no Ray cluster answers at {address}; 'ray start --head' starts one"
        ) from error


def map_on_ray(
    function: Callable[[parallel_map.Item], parallel_map.Result],
    items: Sequence[parallel_map.Item],
    address: str | None = None,
    called: parallel_map.Called = parallel_map.numbered,
) -> Iterator[tuple[int, parallel_map.Result]]:
    """Map as ``map_on_processes`` does, on a Ray cluster (``ray_cluster``); nodes may die as well.

    Raises ``ServetwinError`` if Ray is not installed, the address does not answer, or Ray fails.
    """
    with ray_cluster("--ray", address) as ray:
        remote = ray.remote(_call).options(max_retries=parallel_map.TRIES - 1)
        common, lost = ray.put(function), list[int]()
        places = {remote.remote(common, item): place for place, item in enumerate(items)}
        waiting = list(places)
        while waiting:
            (ready, *_), waiting = ray.wait(waiting)
            try:
                yield places[ready], _result(ray, ready)
            except _killed(ray):
                lost.append(places[ready])
    if lost:
        raise parallel_map.LostItems(lost, called)


def _call(
    function: Callable[[parallel_map.Item], parallel_map.Result], item: parallel_map.Item
) -> parallel_map.Result:
    return function(item)


def _result(ray: Any, task: Any) -> Any:
    """Return the result of a task; what its function raised is raised as it was."""
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except _killed(ray):
        raise
    except ray.exceptions.RayError as error:
        raise ServetwinError(f"--ray: {in_one_line(error)}") from error


def _killed(ray: Any) -> tuple[type[Exception], ...]:
    """Return the errors of a task whose process was killed in every try."""
    known = ray.exceptions
    return (known.WorkerCrashedError, known.OutOfMemoryError, known.NodeDiedError)
