"""Engines that were not written here, seen as black boxes."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.twin.black_box.burst_sender import Allowance, BurstSender
from app.twin.black_box.experiments import find_batching, find_context
from app.twin.black_box.identified_limits import IdentifiedLimits
from app.twin.black_box.sender import LiveSender
from loadtest.endpoint import Endpoint, probe
from tests.benchmarks.foreign import ENGINES, missing, served, write_model
from workloads.errors import Unreachable
from workloads.request import Request

PYTHON = os.environ.get("SERVETWIN_FOREIGN_PYTHON", sys.executable)
"""An interpreter that has transformers' server."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny one."""
    engine = ENGINES["transformers"]
    if absent := missing(engine, PYTHON):
        pytest.skip(f"SERVETWIN_FOREIGN_PYTHON: {PYTHON} has no {', '.join(absent)}")
    return write_model(engine, PYTHON, tmp_path_factory.mktemp("foreign"), layers=1)


@pytest.fixture(scope="module", params=["transformers", "transformers-plain"])
def endpoint(request: pytest.FixtureRequest, model: Path) -> Iterator[Endpoint]:
    """``transformers serve``, with continuous batching and without."""
    with served(ENGINES[request.param], PYTHON, model) as (url, named):
        yield probe(url, model=named)


def test_transformers_serve_is_asked_and_counted_right(endpoint: Endpoint) -> None:
    assert (endpoint.dialect, endpoint.prompt) == ("transformers", "text")
    sender = LiveSender(endpoint)
    for words in (10, 30, 60):
        burst = sender([Request(f"w{words}", 0.0, words, 9)], 30.0)
        assert not burst.messages
        assert len(burst.answers[0].stamps_s) == 9
    assert (burst.shorter, burst.without_usage, burst.probes) == (0, 0, 0)
    assert abs(sender([Request("long", 0.0, 200, 2)], 30.0).answers[0].prompt_tokens - 200) < 50


def test_transformers_serve_shows_how_it_batches(
    endpoint: Endpoint, request: pytest.FixtureRequest
) -> None:
    limits = IdentifiedLimits(longest=400)
    sender = BurstSender(LiveSender(endpoint), Allowance(20.0, 100), np.random.default_rng(0))
    find_context(sender, limits)
    find_batching(sender, limits)
    plain = "transformers-plain" in request.node.name
    expected = {"batching": "continuous", **({"max_seqs": 1} if plain else {})}
    assert limits.identified == expected


def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    engine = ENGINES["llamacpp"]
    with (
        pytest.raises(Unreachable, match=r"did not start; its log ends:\n."),
        served(engine, sys.executable, tmp_path / "model"),
    ):
        pass
