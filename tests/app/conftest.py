"""Fixtures of the tests of the application: one server that is a black box to its clients."""

from collections.abc import Iterator

import pytest

from servetwin.sim.step_times.profile import Profile, StepTimeFit

POLICIES = {
    "batching": "chunked",
    "max_model_len": 200,
    "max_seqs": 4,
    "token_budget": 64,
    "kv_tokens": 1024,
}


@pytest.fixture(scope="session")
def black_box_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose steps take 3 ms and 20 us per row."""
    pytest.importorskip("uvicorn")
    from tests.benchmarks.black_box import served

    profile = Profile(
        name="fast",
        origin="computed from data sheets",
        machine={},
        engine={"model": "fast"},
        policies=POLICIES,
        layouts={"paged": StepTimeFit(coefficients={"constant": 0.003, "rows_from_0": 2e-5})},
    )
    path = tmp_path_factory.mktemp("server") / "fast.json"
    profile.save(path)
    with served(f"--simulated {path}") as at:
        yield at
