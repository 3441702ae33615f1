"""A fixed budget of the fuzzer of API bodies."""

import pytest

from tests.fuzz.api_bodies import ApiBodies, draw
from tests.fuzz.campaign import Budget, run
from tests.support.live_server import CONFIG, LiveServer, wait_until


@pytest.mark.slow
def test_every_body_is_answered() -> None:
    with LiveServer(CONFIG) as server:
        bodies = ApiBodies(server)
        assert run("api_bodies", draw, bodies.check, seed=1, budget=Budget(cases=400)) == 400
        wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 0)
        assert server.metrics()["vllm:kv_cache_usage_perc"] == 0
    assert bodies.statuses >= {200, 400}
