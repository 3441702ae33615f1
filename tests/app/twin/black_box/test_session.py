"""Engines that were not written here: what they tell, what they do not, and one real one."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.twin.black_box.burst_sender import Allowance, BurstRequest, BurstSender
from app.twin.black_box.calibration import BlackBoxCalibrator
from app.twin.black_box.experiments import find_batching, find_context
from app.twin.black_box.identified_limits import IdentifiedLimits
from app.twin.black_box.sender import PROBED_WORDS, Burst, LiveSender
from loadtest.endpoint import Endpoint, probe
from tests.benchmarks.foreign import ENGINES, missing, served, write_model
from tests.support.dialect_servers import Kind, kinds, length_of, models, running, sse
from workloads.errors import Unreachable
from workloads.request import Request

PYTHON = os.environ.get("SERVETWIN_FOREIGN_PYTHON", sys.executable)
"""An interpreter that has transformers' server."""


# ------------------------------------------------------------------ what is not told


def answer_without_usage(body: Mapping[str, Any]) -> list[bytes]:
    """Streams tell no counts; whole answers do: two tokens per word and three more."""
    if body["stream"]:
        texts = [{"choices": [{"index": 0, "text": " w"}]}] * body["max_tokens"]
        return sse(*texts, {"choices": [{"text": "", "finish_reason": "length"}]}, done=True)
    assert "stream_options" not in body
    usage = {"prompt_tokens": 2 * length_of(body["prompt"]) + 3, "completion_tokens": 1}
    return [sse({"usage": usage})[0].removeprefix(b"data: ")]


def answer_without_any(body: Mapping[str, Any]) -> list[bytes]:
    return answer_without_usage({**body, "stream": True})


def sent(endpoint: Endpoint, *words: int) -> tuple[LiveSender, list[Burst]]:
    sender = LiveSender(endpoint)
    bursts = [sender([Request(f"w{n}", 0.0, n, 4)], 10.0) for n in words]
    return sender, bursts


def test_prompts_of_text_are_counted_by_whole_answers_where_streams_have_no_usage() -> None:
    kind = Kind(models("me"), {"/v1/completions": answer_without_usage})
    with running(kind) as url:
        sender, bursts = sent(probe(url), 20, 43)
    whole = [length_of(body["prompt"]) for _, body in kind.asked if not body["stream"]]
    assert whole == list(PROBED_WORDS)
    assert sender.token_line() == pytest.approx((3.0, 2.0), abs=0.01)
    assert [b.answers[0].prompt_tokens for b in bursts] == [43, 43]
    assert [(b.without_usage, b.probes) for b in bursts] == [(1, len(PROBED_WORDS)), (1, 0)]
    note = sender.prompts_note() or ""
    assert "2.00 tokens per word and 3.0 more, as the usage of answers" in note


def test_a_word_is_a_token_where_nothing_tells_and_the_note_says_so() -> None:
    kind = Kind(models("me"), {"/v1/completions": answer_without_any})
    with running(kind) as url:
        sender, bursts = sent(probe(url), 20, 43)
    assert [b.answers[0].prompt_tokens for b in bursts] == [20, 43]
    assert "nothing tells their length" in (sender.prompts_note() or "")


def test_prompts_that_are_counted_in_streams_or_sent_as_ids_need_no_probes() -> None:
    for name, told in (("transformers", "as the usage tells"), ("vllm", None)):
        with running(kinds()[name]) as url:
            sender, bursts = sent(probe(url), 20, 43)
        assert [b.probes for b in bursts] == [0, 0]
        assert [b.answers[0].prompt_tokens for b in bursts] == [20, 43]
        note = sender.prompts_note()
        assert (note and note.split(", ")[-1]) == told


def test_probes_count_as_requests_and_the_notes_say_what_was_not_told() -> None:
    kind = Kind(models("me"), {"/v1/completions": answer_without_usage})
    with running(kind) as url:
        allowance = Allowance(5.0, 40)
        calibrator = BlackBoxCalibrator(probe(url), allowance)
        calibrator.identify(rounds=0)
    assert allowance.used_requests == sum("prompt" in body for _, body in kind.asked) <= 40
    notes = calibrator.limits.notes
    assert any("came without usage: an event is taken for a token" in note for note in notes)


def test_the_note_about_prompts_is_among_the_others() -> None:
    limits = IdentifiedLimits(longest=10, notes=["first"], prompts="prompts are text")
    assert limits.as_dict()["notes"] == ["first", "prompts are text"]
    assert limits.lines()[-1] == "note: prompts are text"


def test_no_burst_is_waited_for_longer_than_half_of_the_time_left() -> None:
    waits: list[float] = []

    def send(requests: Sequence[Request], timeout_s: float) -> Burst:
        waits.append(timeout_s)
        return Burst([])

    sender = BurstSender(send, Allowance(100.0, 10, used_s=20.0), np.random.default_rng(0))
    sender.send([BurstRequest(1, 1)])
    assert waits == [40.0]


# ------------------------------------------------------------------ the real one


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
