"""A certificate is trusted where the user says so, on the loopback too, and nowhere else."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from servetwin.loadtest.endpoint import client_settings, probe
from servetwin.loadtest.http import http_client
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.report.report import render_report
from servetwin.loadtest.run.client import run_load_test
from servetwin.workloads.errors import LoadTestError
from tests.support.certificates import own_certificate, server_side
from tests.support.loadtest_server import ScriptedServer, stream_of
from tests.support.mock_load import trace_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""Of connections that a handshake ended, in Python's own event loop."""

NOTE = "note: the certificate of the server was not verified (--insecure)"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return own_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> Iterator[ScriptedServer]:
    scripted = ScriptedServer(lambda body: stream_of(3), tls=server_side(*certificate))
    with scripted.running() as running:
        yield running


def reported(server: ScriptedServer, *, insecure: bool = False, processes: int = 1) -> str:
    """The report of a load test of which every request finished."""
    endpoint = probe(server.url, insecure=insecure)
    run = run_load_test(endpoint, trace_of(0.0, 0.01), options=LoadOptions(processes=processes))
    assert run.requests["status"].tolist() == ["finished"] * 2
    assert run.scenario["endpoint"]["insecure"] is insecure
    return render_report(run)


def test_a_certificate_that_signed_itself_is_refused(server: ScriptedServer) -> None:
    with pytest.raises(LoadTestError, match=r"name its CA in SSL_CERT_FILE, or give --insecure$"):
        probe(server.url)


def test_an_authority_of_the_environment_counts_on_the_loopback(
    server: ScriptedServer, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert NOTE not in reported(server)


@pytest.mark.parametrize("processes", [1, 2])
def test_insecure_accepts_it_and_the_report_says_so(server: ScriptedServer, processes: int) -> None:
    assert NOTE in reported(server, insecure=True, processes=processes)


def test_the_transport_of_httpx_is_no_different(
    server: ScriptedServer, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "httpx_reason", lambda *_, **__: "a test")
    assert NOTE in reported(server, insecure=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert NOTE not in reported(server)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "No such file or directory"), (b"no certificate", "NO_CERTIFICATE_OR_CRL_FOUND")],
)
def test_a_file_without_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, reason: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(LoadTestError) as caught:
        client_settings("https://localhost/v1")
    assert str(caught.value).startswith(
        f"SSL_CERT_FILE {file}: no certificates can be read there ("
    )
    assert reason in str(caught.value)
    assert str(caught.value).endswith("; name a file in PEM format")


def test_plain_http_on_the_loopback_loads_no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpx, "create_ssl_context", None)
    assert client_settings("http://127.0.0.1:8000/v1")["verify"] is False
