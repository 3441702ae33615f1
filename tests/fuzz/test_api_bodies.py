"""A thousand bodies that no run before has sent; a failure names its seed."""

import secrets

import pytest

from tests.fuzz.api_bodies import ApiBodies, draw, mock_client
from tests.fuzz.campaign import Budget, run
from tests.support.live_server import CONFIG, LiveServer, wait_until


@pytest.mark.slow
def test_every_body_is_answered() -> None:
    with LiveServer(CONFIG) as server:
        bodies = ApiBodies(server.client)
        seed = secrets.randbits(32)
        assert run("api_bodies", draw, bodies.check, seed, Budget(cases=1000)) == 1000
        wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 0)
        assert server.metrics()["vllm:kv_cache_usage_perc"] == 0
    assert bodies.statuses >= {200, 400}


@pytest.mark.slow
def test_every_body_is_answered_by_the_mock() -> None:
    with mock_client() as client:
        bodies = ApiBodies(client)
        seed = secrets.randbits(32)
        assert run("api_bodies", draw, bodies.check, seed, Budget(cases=1000)) == 1000
    assert bodies.statuses >= {200, 400, 404}
