"""Engines that were not written here, seen as black boxes."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from servetwin.app.calibration.black_box.calibration import BlackBoxCalibrator
from servetwin.app.calibration.black_box.experiments import find_batching, find_context
from servetwin.app.calibration.black_box.identified_limits import IdentifiedLimits
from servetwin.app.calibration.black_box.sender import Allowance, BurstSender, LiveSender
from servetwin.loadtest.endpoint import Endpoint, probe
from servetwin.workloads.errors import Unreachable
from servetwin.workloads.request import Request
from tests.benchmarks.black_box import azure_window
from tests.benchmarks.foreign import ENGINES, missing, served, stated_kv_tokens, write_model

pytestmark = pytest.mark.foreign
PYTHON = os.environ.get("SERVETWIN_FOREIGN_PYTHON", sys.executable)
"""An interpreter that has the servers of transformers, or vLLM."""


def tiny_model(name: str, folder: Path) -> Path:
    engine = ENGINES[name]
    if absent := missing(engine, PYTHON):
        pytest.skip(f"SERVETWIN_FOREIGN_PYTHON: {PYTHON} has no {', '.join(absent)}")
    return write_model(engine, PYTHON, folder, layers=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("transformers", tmp_path_factory.mktemp("foreign"))


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


def test_vllm_is_identified_with_nothing_but_its_url(tmp_path: Path) -> None:
    """What the log states is identified, or said not to be."""
    engine, model = ENGINES["vllm"], tiny_model("vllm", tmp_path)
    with served(engine, PYTHON, model) as (url, named):
        endpoint = probe(url, model=named)
        assert (endpoint.dialect, endpoint.prompt) == ("vllm", "ids")
        black_box = BlackBoxCalibrator(endpoint, Allowance(100.0, 1000))
        black_box.identify(1, azure_window(50))
        stated = stated_kv_tokens(engine, model)
    found = black_box.limits
    assert found.identified["batching"] in ("chunked", "continuous")
    assert found.identified["prefix_cache"] is True
    assert stated
    if "kv_tokens" in found.identified:
        assert found.identified["kv_tokens"] == pytest.approx(stated, rel=0.05)
    else:
        assert found.not_identified["kv_tokens"]
    assert black_box.profile().step_time("paged").steps > 500


def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    engine = ENGINES["llamacpp"]
    with (
        pytest.raises(Unreachable, match=r"did not start; its log ends:\n."),
        served(engine, sys.executable, tmp_path / "model"),
    ):
        pass
