"""``servetwin serve --mock`` from end to end: its start, its truth, its end."""

import signal
import socket
from pathlib import Path

import pytest

from servetwin.loadtest.endpoint import probe
from servetwin.loadtest.run.client import run_load_test
from servetwin.workloads.errors import LoadTestError
from tests.support.command import refused
from tests.support.mock_endpoint import evenly
from tests.support.mock_process import mock_process
from tests.support.mock_truth import read_truth

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_and_the_truth_is_kept(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "truth.jsonl"
    options = ("--ttft-ms", 5, "--itl-ms", 1, "--model", "mine", "--fault", "never:every=3")
    with mock_process(*options, "--truth", path) as (process, url):
        run_load_test(probe(url), evenly(2, 100, 4))
        with socket.create_connection(("127.0.0.1", port_of(url)), 5) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99\r\n\r\n")
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines() == [f"2 requests came; the truth is in {path}"]
    found = read_truth(path)
    assert [truth.outcome for truth in found] == ["complete"] * 2
    assert [truth.tokens for truth in found] == [[1] * 4] * 2


def port_of(url: str) -> int:
    return int(url.removesuffix("/v1").rpartition(":")[2])


def test_streams_in_flight_end_as_stopped(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    body = b'{"prompt": "a", "stream": true, "max_tokens": 1000}'
    with (
        mock_process("--ttft-ms", 1, "--itl-ms", 1000, "--truth", path) as (process, url),
        socket.create_connection(("127.0.0.1", port_of(url)), 5) as client,
    ):
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 51\r\n\r\n" + body)
        while b"t0" not in client.recv(65_536):
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == 0
    (truth,) = read_truth(path)
    assert (truth.outcome, truth.tokens, truth.max_tokens) == ("stopped", [1], 1000)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused("serve", "--mock", "--port", port)
    assert line == f"servetwin: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_host_that_is_none() -> None:
    line = refused("serve", "--mock", "--host", "no.such.host.invalid")
    assert line.startswith("servetwin: cannot listen on no.such.host.invalid: ")


def test_a_truth_file_that_cannot_be_written(tmp_path: Path) -> None:
    line = refused("serve", "--mock", "--port", 0, "--truth", tmp_path)
    assert line == f"servetwin: --truth {tmp_path}: cannot be written (Is a directory)"


def test_connections_are_refused_from_the_start() -> None:
    with (
        mock_process("--fault", "refuse") as (_, url),
        pytest.raises(LoadTestError, match="Connection refused"),
    ):
        probe(url)
