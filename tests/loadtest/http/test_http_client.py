"""Which transport a load test takes, and through which proxy."""

from importlib.util import find_spec

import httpx
import pytest

from servetwin.loadtest.endpoint import Endpoint
from servetwin.loadtest.http.http_client import httpx_reason, open_client
from servetwin.loadtest.options import LoadOptions
from servetwin.loadtest.run.client import run_load_test
from servetwin.workloads.errors import LoadTestError
from tests.support.loadtest_server import ScriptedServer, stream_of
from tests.support.mock_load import trace_of

PROXY = "http://proxy.example:3128"
WAYS: dict[str, tuple[dict[str, str], LoadOptions, str, bool, str | None]] = {
    "plain": ({}, LoadOptions(), "http://h/v1", True, None),
    "HTTP/2": ({}, LoadOptions(http2=True), "http://h/v1", True, "HTTP/2"),
    "given": ({}, LoadOptions(proxy=PROXY), "http://h/v1", False, "proxy"),
    "http": ({"http_proxy": PROXY}, LoadOptions(), "http://h/v1", True, "proxy of the environment"),
    "other scheme": ({"http_proxy": PROXY}, LoadOptions(), "https://h/v1", True, None),
    "all": ({"all_proxy": PROXY}, LoadOptions(), "https://h/v1", True, "proxy of the environment"),
    "around": ({"all_proxy": PROXY, "no_proxy": "h"}, LoadOptions(), "http://h/v1", True, None),
    "not trusted": ({"http_proxy": PROXY}, LoadOptions(), "http://h/v1", False, None),
}


@pytest.mark.parametrize(
    ("environment", "options", "url", "trusts", "reason"), WAYS.values(), ids=WAYS
)
def test_which_way_is_taken(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    options: LoadOptions,
    url: str,
    trusts: bool,
    reason: str | None,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert httpx_reason(httpx.URL(url), options, trust_env=trusts) == reason


def test_a_load_test_through_a_proxy() -> None:
    """The scripted server takes whole URLs as well, as a proxy does."""
    endpoint = Endpoint("http://absent.invalid/v1", "mock")
    with ScriptedServer(lambda body: stream_of(3)).running() as server:
        options = LoadOptions(proxy=server.url)
        result = run_load_test(endpoint, trace_of(0.0, 0.01), options=options)
    assert [arrival.path for arrival in server.arrivals] == [endpoint.url] * 2
    assert result.requests["status"].tolist() == ["finished"] * 2
    assert result.meta["client"]["transport"] == "httpx (proxy)"
    assert server.url not in repr(result.scenario)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LoadOptions(proxy="nonsense"), "the proxy cannot be used; give a URL such as"),
        (LoadOptions(http2=True), "HTTP/2 needs the package h2"),
    ],
)
def test_ways_that_cannot_be_taken(options: LoadOptions, message: str) -> None:
    if options.http2 and find_spec("h2"):
        pytest.skip("HTTP/2 can be spoken here")
    with pytest.raises(LoadTestError, match=message):
        open_client(Endpoint("http://h/v1", "m"), options)
