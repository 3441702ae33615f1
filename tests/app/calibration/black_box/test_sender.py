"""Bursts over HTTP: stamps, failures, and how long prompts of text are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn")
from servetwin.app.calibration.black_box.calibration import BlackBoxCalibrator
from servetwin.app.calibration.black_box.sender import (
    PROBED_WORDS,
    Allowance,
    Burst,
    BurstRequest,
    BurstSender,
    LiveSender,
)
from servetwin.loadtest.endpoint import Endpoint, probe
from servetwin.workloads.request import Request
from tests.support.dialect_servers import Kind, kinds, length_of, models, running, sse


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


def test_a_word_is_a_token_where_no_usage_comes_and_the_note_says_so() -> None:
    kind = Kind(models("me"), {"/v1/completions": answer_without_any})
    with running(kind) as url:
        sender, bursts = sent(probe(url), 20, 43)
    assert [b.answers[0].prompt_tokens for b in bursts] == [20, 43]
    assert "nothing tells their length" in (sender.prompts_note() or "")


def test_prompts_that_are_counted_in_streams_or_sent_as_ids_need_no_probes() -> None:
    for name, source in (("transformers", "as the usage tells"), ("vllm", None)):
        with running(kinds()[name]) as url:
            sender, bursts = sent(probe(url), 20, 43)
        assert [b.probes for b in bursts] == [0, 0]
        assert [b.answers[0].prompt_tokens for b in bursts] == [20, 43]
        note = sender.prompts_note()
        assert (note and note.split(", ")[-1]) == source


def test_probes_count_as_requests_and_the_notes_say_what_was_missing() -> None:
    kind = Kind(models("me"), {"/v1/completions": answer_without_usage})
    with running(kind) as url:
        allowance = Allowance(5.0, 40)
        calibrator = BlackBoxCalibrator(probe(url), allowance)
        calibrator.identify(rounds=0)
    assert allowance.used_requests == sum("prompt" in body for _, body in kind.asked) <= 40
    notes = calibrator.limits.notes
    assert any("came without usage: an event is taken for a token" in note for note in notes)


def test_the_sender_stamps_every_token_and_counts_failures(black_box_url: str) -> None:
    send = LiveSender(probe(black_box_url))
    burst = send([Request("b", 0.0, 12, 5), Request("a", 0.0, 8, 3)], 20.0)
    assert [len(answer.stamps_s) for answer in burst.answers] == [5, 3]
    assert [answer.prompt_tokens for answer in burst.answers] == [12, 8]
    assert not burst.messages
    assert send.round_trip_s() > 0
    too_long = send([Request("c", 0.0, 500, 5)], 20.0)
    assert set(too_long.messages) == {"http_4xx"}
    assert too_long.answers[0].stamps_s == ()


def test_text_is_asked_in_words_so_that_the_server_counts_tokens(black_box_url: str) -> None:
    """The words are drawn by the salt, and other words have other letters: it is stated."""
    send = LiveSender(probe(black_box_url, prompt="text", salt="words"))
    for words in (8, 20):
        send([Request(f"w{words}", 0.0, words, 2)], 20.0)
    _, per_word = send.token_line()
    assert per_word > 0
    (answer,) = send([Request("long", 0.0, 100, 2)], 20.0).answers
    assert abs(answer.prompt_tokens - 100) < 25


def test_no_burst_is_waited_for_longer_than_half_of_the_time_left() -> None:
    waits: list[float] = []

    def send(requests: Sequence[Request], timeout_s: float) -> Burst:
        waits.append(timeout_s)
        return Burst([])

    sender = BurstSender(send, Allowance(100.0, 10, used_s=20.0), np.random.default_rng(0))
    sender.send([BurstRequest(1, 1)])
    assert waits == [40.0]
