"""A Ray cluster, whose processes run the code of this program."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from servetwin.workloads.errors import ServetwinError

PACKAGES = ("workloads", "policies", "sim", "loadtest")
"""What the processes of the cluster are given, whatever is installed on their nodes."""
LEFT_HERE = ["__pycache__", "*.so", "*.pyd"]
"""What they are not given: modules that were compiled for this machine."""
CONNECT_S = 4.0
"""The longest wait for a first answer: for the name of the host, a connection, and HTTP/2 on it."""
HEALTH_CHECK_S = 15.0
"""The longest wait for Ray's own check, of what speaks HTTP/2; loading Ray takes most of it."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2, and so of gRPC, sends first: its preface and empty settings."""
_SETTINGS, _TYPE_AT = 4, 3
"""The type of the frame that a server answers with, and the place of that byte."""
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
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="error",
            runtime_env=_runtime_env(),
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
    """Return what Ray says of an error, which has many lines, in one that is not too long."""
    return " ".join(str(error).split())[:_LONGEST_REASON]


def _runtime_env() -> dict[str, Any]:
    modules = [str(_ROOT / package) for package in PACKAGES]
    environment: dict[str, Any] = {"py_modules": modules, "excludes": LEFT_HERE}
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
        _require_greeting(host, int(port))
        subprocess.run(
            [sys.executable, *command], check=True, capture_output=True, timeout=HEALTH_CHECK_S
        )
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        raise ServetwinError(
            f"{option}: no Ray cluster answers at {address}; 'ray start --head' starts one"
        ) from error


def _require_greeting(host: str, port: int) -> None:
    """Raise ``OSError`` unless something answers in HTTP/2 within ``CONNECT_S``, as Ray does.

    A thread asks, for a name server and a host of several addresses may take longer.
    """
    answers: SimpleQueue[bytes | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_greeted(host, port))
        except (OSError, OverflowError) as error:
            answers.put(error)

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=CONNECT_S)
    except Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise answer
    if answer[_TYPE_AT:][:1] != bytes((_SETTINGS,)):
        raise ConnectionError


def _greeted(host: str, port: int) -> bytes:
    """Return the beginning of the frame with which a server of HTTP/2 answers a greeting."""
    if os.environ.get("RAY_USE_TLS") == "1":  # Nothing answers a greeting that is not encrypted.
        socket.create_connection((host, port), CONNECT_S).close()
        return bytes((0, 0, 0, _SETTINGS))
    with socket.create_connection((host, port), CONNECT_S) as connection:
        connection.sendall(_GREETING)
        begun = b""
        while len(begun) <= _TYPE_AT and (more := connection.recv(16)):
            begun += more
    return begun
